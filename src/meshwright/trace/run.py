"""A module run under a recorder: its modules say when they begin and end, and calls of its layers
have numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
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
    names: dict[int, str] = {}
    for parent in module.modules():
        inside = "" if has_forward(parent) else f"{names.get(id(parent), '')}/"
        for name, child in parent.named_children():
            names.setdefault(id(child), f"{inside}{name}".lstrip("/"))
    with _bounded(recorder, layers), listening(recorder, names):
        run()
    return recorder


def has_forward(module: nn.Module) -> bool:
    """Whether its class can be called; lists of modules cannot."""
    return type(module).forward is not nn.Module.forward


@contextmanager
def listening(
    recorder: TraceRecorder, names: Mapping[int, str]
) -> Iterator[None]:
    """Modules say when they begin and end. names: of modules in their parents.

    What is numbered and runs on rows that were picked is one of several experts, and has one name
    with them; the parts of one that is an nn.Sequential, which runs them all, keep their own.
    """

    def begin(module: nn.Module, inputs: Any) -> None:
        recorder.ran.add(id(module))
        name = names.get(id(module), "")
        lists, _, number = name.rpartition("/")
        part = recorder.stack and isinstance(
            recorder.stack[-1][1], nn.Sequential
        )
        if number.isdigit() and not part and recorder.picks(inputs):
            name = f"{lists}/*"
        recorder.stack.append((name, module))

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
    parts = {
        id(part): (part, layer, name, part.forward)
        for layer in layers
        for name, part in _called(layer)
    }
    current: nn.Module | None = None

    def call(
        part: nn.Module,
        layer: nn.Module,
        name: str,
        forward: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        nonlocal current
        whole = part is layer
        same = looks(layer) if whole and recorder.long else None
        if same in recorder.long:
            number, earlier, result = recorder.long[same]
            recorder.copies[recorder.calls] = (number, earlier, layer)
            recorder.call = recorder.calls
            recorder.calls += 1
            return result
        before = len(recorder.records)
        outer = recorder.stack
        recorder.stack = [] if whole else [(name, part)]
        if whole or layer is not current:
            recorder.call = recorder.calls
            recorder.calls += 1
        current = layer
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
        if whole and len(recorder.records) - before > LOOP:
            recorder.long[looks(layer)] = recorder.call, layer, result
        return result

    try:
        for part, layer, name, forward in parts.values():
            part.forward = partial(call, part, layer, name, forward)
        yield
    finally:
        for part, *_ in parts.values():
            del part.forward


def _called(
    layer: nn.Module, path: str = ""
) -> Iterator[tuple[str, nn.Module]]:
    """A layer, or what runs of one that is itself a list of modules, by its place there."""
    if has_forward(layer):
        yield path, layer
        return
    for name, child in layer.named_children():
        yield from _called(child, f"{path}/{name}".lstrip("/"))


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
