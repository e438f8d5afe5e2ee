"""One rank of a cluster of any size, in one process and without memory: PyTorch's fake process
group and fake tensors.

The program that runs inside is the real one: DTensor, FSDP2 and pipeline stages issue their
collectives, but nothing travels, nothing is computed, and tensors have shapes without storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import (
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def fake_world(rank: int, world: int) -> Iterator[None]:
    """This process is rank `rank` of `world`; collectives return at once. Meshes may be made;
    tensors are still real.
    """
    dist.init_process_group(
        "fake", rank=rank, world_size=world, store=FakeStore()
    )
    try:
        with patched():
            yield
    finally:
        _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]  # it holds plans that name the groups of this world
        dist.destroy_process_group()


def without_storage() -> FakeTensorMode:
    """A context in which tensors have shapes only."""
    return FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def patched() -> Iterator[None]:
    """What PyTorch 2.13 needs to run its own parts on tensors without storage.

    Meshes do real arithmetic on their ranks; shapes of DTensors are worked out outside all
    counters, else global work would be booked as local; stages agree on static shapes by a tensor,
    which here has no value.
    """
    with ExitStack() as stack:
        for name in ("__init__", "__getitem__", "_concatenate"):
            stack.enter_context(
                replaced(DeviceMesh, name, unset_fake_temporarily)
            )
        stack.enter_context(
            replaced(
                ShardingPropagator,
                "_propagate_tensor_meta_non_cached",
                _disable_current_modes,
            )
        )
        stack.enter_context(replaced(torch.utils, "swap_tensors", unknown))
        for name in ("_warmup_forward_vote", "_warmup_backward_result"):
            stack.enter_context(
                mock.patch.object(
                    PipelineStage,
                    name,
                    lambda *a, **k: SimpleNamespace(item=lambda: 1),
                )
            )
        yield


@contextmanager
def unknown() -> Iterator[None]:
    """The fake mode forgets which tensors it has met: it knows them by weak references, and modules
    exchange no parameter that has one.
    """
    if mode := detect_fake_mode():
        mode.fake_tensor_converter.meta_converter.tensor_memo.clear()
    yield


def replaced(owner: Any, name: str, around: Callable[[], Any]) -> Any:
    """A patch that runs the method `name` of `owner` inside the context `around()`."""
    original = getattr(owner, name)

    @wraps(original)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with around():
            return original(*args, **kwargs)

    patch = (
        staticmethod(inside)
        if isinstance(owner.__dict__[name], staticmethod)
        else inside
    )
    return mock.patch.object(owner, name, patch)
