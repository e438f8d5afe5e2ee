"""A module run under a recorder: its modules say when they begin and end, and calls of its layers
have numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.utils._pytree import tree_iter

from .record import TraceRecorder

LOOP = 1500
"""Operations of a layer with a loop over tokens or chunks: of layers that look alike one is run."""


NUMBERS = ("layer_id", "idx", "index")
"""In names of attributes that number layers."""


def record(
    module: nn.Module,
    run: Callable[[], Any],
    layers: list[nn.Module],
) -> TraceRecorder:
    """The records of one forward pass, whose layers are calls of these modules."""
    recorder = TraceRecorder(dict(module.named_parameters()))
    names = {
        id(child): name
        for parent in module.modules()
        for name, child in parent.named_children()
    }
    with _bounded(recorder, layers), listening(recorder, names):
        run()
    return recorder


@contextmanager
def listening(
    recorder: TraceRecorder, names: Mapping[int, str]
) -> Iterator[None]:
    """Modules say when they begin and end. names: of modules in their parents."""

    def begin(module: nn.Module, _: Any) -> None:
        recorder.ran.add(id(module))
        recorder.stack.append((names.get(id(module), ""), module))

    def end(module: nn.Module, _: Any, __: Any) -> None:
        recorder.stack.pop()

    handles = (
        hooks.register_module_forward_pre_hook(begin),
        hooks.register_module_forward_hook(end),
    )
    saving = torch.autograd.graph.saved_tensors_hooks(
        recorder.pack, lambda tensor: tensor
    )
    try:
        with saving, recorder:
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _bounded(
    recorder: TraceRecorder, layers: list[nn.Module]
) -> Iterator[None]:
    """Each call of a layer has its number while it runs; what stands between two is the first's."""
    unique = list({id(layer): layer for layer in layers}.values())
    own = [layer.forward for layer in unique]

    def counted(
        layer: nn.Module, forward: Callable[..., Any]
    ) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            same = looks(layer) if recorder.long else None
            if same in recorder.long:
                number, earlier, result = recorder.long[same]
                recorder.copies[recorder.calls] = (number, earlier, layer)
                recorder.call = recorder.calls
                recorder.calls += 1
                return result
            before = len(recorder.records)
            outer, recorder.stack = recorder.stack, []
            recorder.call = recorder.calls
            recorder.calls += 1
            wide = [
                t
                for t in tree_iter((args, kwargs))
                if isinstance(t, torch.Tensor) and t.is_floating_point()
            ]
            if wide and not recorder.hidden:
                recorder.hidden = int(wide[0].shape[-1])
            recorder.running = True
            result = forward(*args, **kwargs)
            recorder.stack, recorder.running = outer, False
            if len(recorder.records) - before > LOOP:
                recorder.long[looks(layer)] = recorder.call, layer, result
            return result

        return call

    try:
        for layer, forward in zip(unique, own, strict=True):
            layer.forward = counted(layer, forward)
        yield
    finally:
        for layer in unique:
            del layer.forward


def looks(layer: nn.Module) -> object:
    """Classes, shapes and settings of a layer; its number is none of these."""
    return tuple(
        (
            type(m).__qualname__,
            tuple(tuple(p.shape) for p in m.parameters(recurse=False)),
            tuple(
                (k, v)
                for k, v in sorted(vars(m).items())
                if isinstance(v, (int, float, str))
                and not any(word in k for word in NUMBERS)
            ),
        )
        for m in layer.modules()
    )
