"""An `nn.Module` -> the `Model` that predictions count: layers of one kind joined, vocabulary and
experts recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import nn

from ..describe.model import Model, MoE
from ..describe.traced import Traced, TracedLayer, TracedOp
from ..errors import BadInput
from .exact import (
    demand_all_parameters,
    demand_exact,
    demand_unchanged,
    switches,
)
from .joined import TracedPass
from .layers import traced_ops
from .owned import Records, idle, unread, vocabulary_of, with_unread
from .record import TraceRecorder
from .run import record


def lists(module: nn.Module) -> list[list[nn.Module]]:
    """What may be the layers: elements of an outermost list of modules, that with most parameters
    first; the module itself where it has none. Towers of other media have lists that do not run.
    """
    every: list[nn.Module] = []

    def look(parent: nn.Module) -> None:
        for child in parent.children():
            if isinstance(child, (nn.ModuleList, nn.Sequential)) and len(
                child
            ):
                every.append(child)
            else:
                look(child)

    look(module)
    every.sort(key=lambda one: -sum(p.numel() for p in one.parameters()))
    return [list(one.children()) for one in every] or [[module]]


def in_16_bits_or_32(at: Callable[[torch.dtype], Model]) -> Model:
    """A trace in 16 bits; in 32, and said, of code in which numbers of both widths would meet.
    What its code makes without naming a device joins the rest where they would meet.
    """
    try:
        return at(torch.bfloat16)
    except RuntimeError as error:
        if "expected device" in str(error):
            with torch.device("meta"):
                return at(torch.bfloat16)
        if "type" not in str(error):
            raise
    made = at(torch.float32)
    note = "its code does not run in 16 bits: activations are counted as it keeps them in 32"
    return replace(made, notes=(*made.notes, note))


def traced_model(
    module: nn.Module,
    run: Callable[[int], Callable[[], Any]],
    tokens: int,
    name: str,
    seq: int,
    notes: tuple[str, ...] = (),
) -> Model:
    """The model of a module that what `run(T)` gives calls on T tokens."""
    sizes = {n: tuple(p.shape) for n, p in module.named_parameters()}
    for layers in lists(module):
        small = _pass(module, run, layers, sizes=sizes, T=tokens)
        if small.recorder.calls:
            break
    else:
        raise BadInput("no layer of the model ran in its trace")
    large = _pass(module, run, layers, sizes=sizes, T=2 * tokens)
    if small.recorder.calls != large.recorder.calls:
        raise BadInput("its number of layers depends on the number of tokens")
    few, many = _by_call(small.recorder), _by_call(large.recorder)
    vocabulary = vocabulary_of(large, many)
    owned = set(sizes) - {
        vocabulary.get("embedding"),
        vocabulary.get("logits"),
        *vocabulary.get("biases", ()),
    }
    before = traced_ops(small, large, (few[-1], many[-1]), owned)
    kinds: dict[tuple[TracedOp, ...], int] = {}
    order = [
        kinds.setdefault(ops, len(kinds))
        for ops in _layers(
            small, large, (few, many), layers=layers, owned=owned
        )
    ]
    after = traced_ops(small, large, (few[-2], many[-2]), owned)
    away = idle(module, large.recorder.ran, layers) & owned
    after = with_unread(after, owned, owned - away, sizes)
    left = sum(prod(sizes[name]) for name in away)
    body = Traced(
        tuple(
            TracedLayer(ops, any(op.kind == "experts" for op in ops))
            for ops in kinds
        ),
        tuple(order),
        before,
        after=after,
        states=any(op.kind == "product" for ops in kinds for op in ops),
    )
    notes = (*notes, *_notes(left, large.recorder))
    made = _described(body, large, vocabulary, name=name, seq=seq, notes=notes)
    demand_all_parameters(made, sum(map(prod, sizes.values())) - left)
    demand_exact(made, small, large)
    demand_exact(made, _pass(module, run, layers, sizes=sizes, T=3 * tokens))
    return made


def _notes(left: int, recorder: TraceRecorder) -> Iterator[str]:
    """What is not counted, and what was assumed. left: parameters that no text passes."""
    if left:
        yield (
            f"language model only: modules that no text passes, with {left:,} parameters, are left"
            " out"
        )
    if places := sorted(recorder.assumed):
        yield (
            f"the code asks of its data what a trace cannot know (in {', '.join(places[:3])}): the"
            " way of a yes is counted"
        )


def _layers(
    small: TracedPass,
    large: TracedPass,
    records: tuple[dict[int, Records], dict[int, Records]],
    layers: list[nn.Module],
    owned: set[str],
) -> Iterator[tuple[TracedOp, ...]]:
    """The operations of each call of a layer, which takes its parameters out of `owned`."""
    few, many = records
    calls = large.recorder.calls
    for call in range(calls):
        if call in large.recorder.copies:
            yield _copied(small, large, records, call=call, owned=owned)
            continue
        ops = traced_ops(small, large, (few[call], many[call]), owned)
        own = unread(large, layers, call, calls)
        yield with_unread(ops, owned, own, large.sizes)


def _copied(
    small: TracedPass,
    large: TracedPass,
    records: tuple[dict[int, Records], dict[int, Records]],
    call: int,
    owned: set[str],
) -> tuple[TracedOp, ...]:
    """The operations of a layer that looks like an earlier one and was not run: those of the
    earlier one, with what this one owns.
    """
    number, earlier, layer = large.recorder.copies[call]
    names = {i: name for name, i in large.recorder.names.items()}
    theirs = dict(earlier.named_parameters())
    own = {
        names[id(p)]: names[id(theirs[name])]
        for name, p in layer.named_parameters()
        if names[id(p)] in owned
    }
    owned.difference_update(own)
    left = set(own.values())
    few, many = records
    ops = traced_ops(small, large, (few[number], many[number]), left)
    return with_unread(ops, left, set(left), large.sizes)


def _pass(
    module: nn.Module,
    run: Callable[[int], Callable[[], Any]],
    layers: list[nn.Module],
    sizes: Mapping[str, tuple[int, ...]],
    T: int,
) -> TracedPass:
    before = switches(module)
    recorder = record(module, run(T), layers)
    demand_unchanged(module, before, T)
    single = frozenset(
        f"{name}.{own}" if name else own
        for name, child in module.named_modules()
        for own, p in child.named_parameters(recurse=False)
        if p.dim() == 2
        and sum(q.dim() > 1 for q in child.parameters(recurse=False)) == 1
        and not any(True for _ in child.children())
    )
    return TracedPass(recorder, T, recorder.hidden, sizes=sizes, single=single)


def _by_call(recorder: TraceRecorder) -> dict[int, Records]:
    """Call of a layer -> its records; -1 what stands before the first, -2 after the last."""
    made: dict[int, Records] = {
        call: [] for call in (-2, *range(-1, recorder.calls))
    }
    for n, r in enumerate(recorder.records):
        last = r.outside and r.call == recorder.calls - 1
        made[-2 if last else r.call].append((n, r))
    return made


def _described(
    body: Traced,
    run: TracedPass,
    vocabulary: Mapping[str, Any],
    name: str,
    seq: int,
    notes: tuple[str, ...],
) -> Model:
    """The fields of a model that layouts and reports ask for."""
    every = [op for kind in body.kinds for op in kind.ops]
    cores = [op for op in every if op.kind == "attention"]
    cut = [op for op in cores if op.cut == "inside"] or cores
    experts = [op for op in every if op.kind == "experts"]
    fields: dict[str, Any] = {}
    if cut:
        main = max(cut, key=lambda op: op.heads * op.query)
        fields |= {
            "heads": main.heads,
            "kv_heads": main.kv_heads,
            "head_dim": main.query,
            "v_head_dim": main.value if main.value != main.query else None,
        }
    if experts:
        rows = next(op for op in experts)
        down = experts[-1]
        fields["moe"] = MoE(
            experts=rows.copies,
            top_k=max(round(rows.rows), 1),
            expert_ffn=down.inner,
        )
    wide = [
        op.outer
        for op in every
        if op.cut == "column" and op.kind == "matmul" and not op.pieces
    ]
    return Model(
        name=name,
        layers=len(body.order),
        hidden=run.hidden,
        ffn=max(wide, default=0),
        vocab=vocabulary.get("rows", 0),
        seq=seq,
        **({"heads": 1} | fields),
        embedding_width=_unusual_width(vocabulary.get("width"), run.hidden),
        tied_embeddings=bool(vocabulary)
        and vocabulary["embedding"] == vocabulary["logits"],
        head_bias=bool(vocabulary.get("biases")),
        attention="causal" if run.recorder.causal else "full",
        positions="none",
        traced=body,
        notes=notes,
    )


def _unusual_width(width: int | None, usual: int) -> int | None:
    """A width, where it is another than the usual one."""
    return width if width != usual else None
