"""An `nn.Module` -> the `Model` that predictions count: layers of one kind joined, vocabulary and
experts recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..count.model import operations, parameters
from ..describe.model import Model, MoE
from ..describe.traced import Traced, TracedLayer, TracedOp
from ..errors import BadInput
from .layers import Pass, traced_ops
from .record import Record, Recorder, record

Records = list[tuple[int, Record]]


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
    """A trace in 16 bits; in 32, and said, of code in which numbers of both widths would meet."""
    try:
        return at(torch.bfloat16)
    except RuntimeError as error:
        if "type" not in str(error):
            raise
    made = at(torch.float32)
    note = "its code does not run in 16 bits: activations are counted as it keeps them in 32"
    return replace(made, notes=(*made.notes, note))


def traced(
    module: nn.Module,
    run: Callable[[int], Any],
    tokens: int,
    name: str,
    seq: int,
    notes: tuple[str, ...] = (),
) -> Model:
    """The model of a module that `run(T)` calls on T tokens."""
    sizes = {n: tuple(p.shape) for n, p in module.named_parameters()}
    for layers in lists(module):
        small = _pass(module, run, layers, sizes, tokens)
        if small.recorder.calls:
            break
    else:
        raise BadInput("no layer of the model ran in its trace")
    large = _pass(module, run, layers, sizes, 2 * tokens)
    calls = large.recorder.calls
    if small.recorder.calls != calls:
        raise BadInput("its number of layers depends on the number of tokens")
    few, many = _by_call(small.recorder), _by_call(large.recorder)
    owned = set(sizes)
    vocabulary = _vocabulary(large, many)
    owned -= {vocabulary.get("embedding", ""), vocabulary.get("logits", "")}
    owned -= set(vocabulary.get("biases", ()))
    before = traced_ops(small, large, (few[-1], many[-1]), owned)
    kinds: dict[tuple[TracedOp, ...], int] = {}
    order: list[int] = []
    for call in range(calls):
        if call in large.recorder.copies:
            own = _copied(small, large, (few, many), call, owned)
        else:
            own = _with_unread(
                traced_ops(small, large, (few[call], many[call]), owned),
                owned,
                _unread(large, layers, call, calls),
                sizes,
            )
        order.append(kinds.setdefault(own, len(kinds)))
    after = traced_ops(small, large, (few[-2], many[-2]), owned)
    idle = _idle(module, large.recorder.ran, layers) & owned
    count = sum(_size(sizes[name]) for name in idle)
    if idle:
        notes = (
            *notes,
            f"language model only: modules that no text passes, with {count:,} parameters, are left"
            " out",
        )
    after = _with_unread(after, owned, owned - idle, sizes)
    body = Traced(
        tuple(
            TracedLayer(ops, any(op.kind == "experts" for op in ops))
            for ops in kinds
        ),
        tuple(order),
        before,
        after,
        any(_mixes(op) for ops in kinds for op in ops),
    )
    if places := sorted(large.recorder.assumed):
        notes = (
            *notes,
            f"the code asks of its data what a trace cannot know (in {', '.join(places[:3])}): the"
            " way of a yes is counted",
        )
    made = _described(body, large, vocabulary, name, seq, notes)
    whole = sum(_size(shape) for shape in sizes.values()) - count
    if parameters(made) != whole:
        raise BadInput(
            f"its layers share parameters in a way that the trace does not follow: {whole:,} in its"
            f" class, {parameters(made):,} counted"
        )
    demand_exact(made, small, large)
    third = _pass(module, run, layers, sizes, 3 * tokens)
    demand_exact(made, third)
    return made


def _copied(
    small: Pass,
    large: Pass,
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
    return _with_unread(ops, left, set(left), large.sizes)


NEAR = 0.01
"""Of FLOPs: what is further off is refused."""


class Uneven(BadInput):
    """Products that do not grow with tokens and pairs of tokens."""


def demand_exact(model: Model, *runs: Pass) -> None:
    """Raise BadInput unless the model's products over so many tokens are those of the pass: what
    has other branches at other lengths, or rules of its own, is no description of one token.
    """
    for one in runs:
        records = one.recorder.records
        flops = [0.0] * one.recorder.calls
        rest = 0.0
        for r in records:
            if 0 <= r.call < len(flops) and not r.outside:
                flops[r.call] += r.flops
            else:
                rest += r.flops
        for call, (earlier, *_) in one.recorder.copies.items():
            flops[call] = flops[earlier]
        theirs = rest + sum(flops)
        ours = sum(
            float(op.forward.matrix) * n
            for op, n in operations(model, one.tokens)
        )
        if abs(ours - theirs) > NEAR * max(theirs, 1.0):
            raise Uneven(
                f"its products do not grow with tokens and pairs of tokens: {theirs:.4g} FLOPs of"
                f" {one.tokens:,} tokens, and {ours:.4g} by what shorter passes say"
            )


def _pass(
    module: nn.Module,
    run: Callable[[int], Any],
    layers: list[nn.Module],
    sizes: Mapping[str, tuple[int, ...]],
    T: int,
) -> Pass:
    recorder = record(module, lambda: run(T), layers)
    single = frozenset(
        f"{name}.{own}" if name else own
        for name, child in module.named_modules()
        for own, p in child.named_parameters(recurse=False)
        if p.dim() == 2
        and sum(q.dim() > 1 for q in child.parameters(recurse=False)) == 1
        and not any(True for _ in child.children())
    )
    return Pass(recorder, T, recorder.hidden, sizes, single)


def _by_call(recorder: Recorder) -> dict[int, Records]:
    """Call of a layer -> its records; -1 what stands before the first, -2 after the last."""
    made: dict[int, Records] = {
        call: [] for call in (-2, *range(-1, recorder.calls))
    }
    for n, r in enumerate(recorder.records):
        last = r.outside and r.call == recorder.calls - 1
        made[-2 if last else r.call].append((n, r))
    return made


def _vocabulary(run: Pass, many: dict[int, Records]) -> dict[str, Any]:
    """The embedding of tokens and the matrix of logits: their records are taken out, and what
    follows the logits.
    """
    of: dict[str, Any] = {}
    lookups = [
        (n, r) for n, r in many[-1] if r.name == "embedding" and r.parameters
    ]
    if not lookups:
        return of
    n, r = max(lookups, key=lambda one: run.sizes[one[1].parameters[0]][0])
    rows, width = run.sizes[r.parameters[0]]
    for i, (_, last) in enumerate(many[-2]):
        shapes = [run.sizes[p] for p in last.parameters]
        if last.flops and (rows, width) in shapes and last.made[-1] == rows:
            of = {
                "embedding": r.parameters[0],
                "logits": next(
                    p for p in last.parameters if run.sizes[p] == (rows, width)
                ),
                "rows": rows,
                "width": width,
                "biases": [
                    p for p in last.parameters if len(run.sizes[p]) == 1
                ],
            }
            del many[-2][i:]
            many[-1].remove((n, r))
            break
    return of


def _unread(
    run: Pass, layers: list[nn.Module], call: int, calls: int
) -> set[str]:
    """Parameters of a layer, by name, where each is called once."""
    if len(layers) != calls:
        return set()
    ids = {id(p) for p in layers[call].parameters()}
    return {n for n, i in run.recorder.names.items() if i in ids}


def _with_unread(
    ops: tuple[TracedOp, ...],
    owned: set[str],
    among: set[str],
    sizes: Mapping[str, tuple[int, ...]],
) -> tuple[TracedOp, ...]:
    """The operations, and parameters that none of them reads."""
    left = owned & among
    owned -= left
    count = sum(_size(sizes[name]) for name in left)
    if not count:
        return ops
    return (*ops, TracedOp("not read", "vector", weights=float(count)))


def _size(shape: tuple[int, ...]) -> int:
    n = 1
    for side in shape:
        n *= side
    return n


def _idle(
    module: nn.Module, ran: set[int], layers: list[nn.Module]
) -> set[str]:
    """Parameters of the outermost modules with modules of their own that never ran, such as towers
    of other media; what stands in a layer belongs to it.
    """
    inside = {id(m) for layer in layers for m in layer.modules()}
    names: set[str] = set()

    def runs(of: nn.Module) -> bool:
        return any(id(m) in ran for m in of.modules())

    def look(parent: nn.Module, path: str) -> None:
        for name, child in parent.named_children():
            here = f"{path}.{name}" if path else name
            if id(child) in inside:
                continue
            if runs(child) or not any(True for _ in child.children()):
                look(child, here)
            else:
                names.update(
                    f"{here}.{n}" for n, _ in child.named_parameters()
                )

    look(module, "")
    return names


def _mixes(op: TracedOp) -> bool:
    """A product that mixes tokens and is no attention."""
    return op.kind == "product"


def _described(
    body: Traced,
    run: Pass,
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
        embedding_width=_other(vocabulary.get("width"), run.hidden),
        tied_embeddings=bool(vocabulary)
        and vocabulary["embedding"] == vocabulary["logits"],
        head_bias=bool(vocabulary.get("biases")),
        attention="causal" if run.recorder.causal else "full",
        positions="none",
        traced=body,
        notes=notes,
    )


def _other(width: int | None, usual: int) -> int | None:
    """A width, where it is another than the usual one."""
    return width if width != usual else None
