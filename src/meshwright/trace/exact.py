"""What a traced model must agree with: the parameters and the products of its passes."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from ..count.model import operations, parameters
from ..describe.model import Model
from ..errors import BadInput
from .joined import TracedPass

NEAR = 0.01
"""Of FLOPs: what is further off is refused."""


class Uneven(BadInput):
    """Products that do not grow with tokens and pairs of tokens."""


def demand_exact(model: Model, *runs: TracedPass) -> None:
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


def demand_all_parameters(model: Model, whole: int) -> None:
    """Raise BadInput unless each parameter of the class is counted once."""
    if parameters(model) != whole:
        raise BadInput(
            f"its layers share parameters in a way that the trace does not follow: {whole:,} in its"
            f" class, {parameters(model):,.0f} counted"
        )


Switches = dict[tuple[str, str], object]
"""(Module's path, its attribute) -> a word or a yes or no; ("...", "") -> the module, kept alive:
the numbers of modules name them, and a new one could take a freed one's.
"""


def switches(module: nn.Module) -> Switches:
    """The modules and what chooses ways in their code; counters and caches may change."""

    def every() -> Iterator[tuple[tuple[str, str], object]]:
        for path, child in module.named_modules():
            yield (path, ""), child
            for key, value in vars(child).items():
                if isinstance(value, (str, bool)):
                    yield (path, key), value

    return dict(every())


def demand_unchanged(module: nn.Module, before: Switches, T: int) -> None:
    """Raise BadInput where T tokens left other modules or ways behind than were built: later
    passes run those, and a fresh model of more tokens would not.
    """
    after = switches(module)
    for (path, key), value in after.items():
        earlier = before.get((path, key))
        if earlier is value or (key and earlier == value):
            continue
        place = f"{key} of {path or 'the model'}" if key else path
        raise BadInput(
            f"its code changes itself as it runs over {T:,} tokens ({place}, {_word(earlier)}"
            f" before and {_word(value)} after): no number of tokens speaks for another"
        )


def _word(value: object) -> str:
    """A setting, or the class of a module."""
    return (
        type(value).__name__ if isinstance(value, nn.Module) else repr(value)
    )
