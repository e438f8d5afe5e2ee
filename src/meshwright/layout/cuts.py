"""What of a model tensor and context parallelism cut, by the names of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import gcd
from typing import Any

from ..describe.layers import kinds
from ..describe.model import Model
from ..describe.traced import TracedOp
from .rule import divides

WHOLE = {"full", "sparse", "chosen"}
"""Mixers with the model's usual heads."""


@lru_cache(maxsize=4096)
def mixers(m: Model) -> frozenset[str]:
    """The words of all layers."""
    return frozenset(word for kind in kinds(m) for word in kind.mixers)


@lru_cache(maxsize=4096)
def heads(m: Model) -> Mapping[str, int]:
    """What tp must divide: heads of every kind of layer, or channels where there are none."""
    here, cuts = mixers(m), {}
    if m.traced:
        return traced_heads(m)
    if here & WHOLE or ("sliding" in here and m.sliding is None):
        cuts["heads"] = m.heads
    if "sliding" in here and m.sliding:
        cuts["sliding.heads"] = m.sliding.heads
    if "linear" in here and m.linear:
        cuts["linear.key_heads"] = m.linear.keys
    if "ssm" in here and m.ssm:
        name = "ssm.heads" if m.ssm.kind == "mamba2" else "ssm.inner"
        cuts[name] = m.ssm.heads if m.ssm.kind == "mamba2" else m.ssm.inner
    if here == {"none"}:
        return {"ffn": m.ffn}
    return cuts or {"heads": m.heads}


@lru_cache(maxsize=4096)
def shared_heads(m: Model) -> Mapping[str, int]:
    """What tp must divide, or be a multiple of, since a rank may hold a copy: key/value heads and
    groups of a state space.
    """
    here, cuts = mixers(m), {}
    if m.traced:
        kept = [op.kv_heads for op in cut_ops(m) if op.kind == "attention"]
        return {f"kv heads {n}": n for n in sorted(set(kept))}
    if m.mla is None and (
        here & WHOLE or ("sliding" in here and not m.sliding)
    ):
        cuts["kv heads"] = m.K
    if "sliding" in here and m.sliding:
        cuts["sliding.kv_heads"] = m.sliding.kv_heads
    if "ssm" in here and m.ssm and m.ssm.kind == "mamba2":
        cuts["ssm.groups"] = m.ssm.groups
    return cuts


def cut_ops(m: Model) -> list[TracedOp]:
    """Operations of a traced model that tp cuts."""
    assert m.traced is not None
    return [
        op
        for kind in m.traced.kinds
        for op in kind.ops
        if op.cut != "whole" and op.kind in ("attention", "matmul")
    ]


def traced_heads(m: Model) -> Mapping[str, int]:
    """Heads of a traced model, and features where matrices are cut that have none."""
    cuts = {}
    for op in cut_ops(m):
        if op.kind == "attention":
            cuts[f"heads {op.heads}"] = op.heads
        elif op.cut == "row":
            cuts[f"features {op.inner}"] = op.inner
    return cuts or {"matrices that tp cuts": 1}


def most_tp(m: Model) -> int:
    """The largest tp that cuts all heads."""
    return gcd(*heads(m).values())


def fewest(m: Model) -> int:
    """Copies of what may be copied begin beyond so many ranks."""
    return gcd(*shared_heads(m).values())


def copies_evenly(m: Model, tp: Any) -> Any:
    """Whether what may be copied is cut tp ways, or copied evenly."""
    holds: Any = True
    for count in shared_heads(m).values():
        holds = holds & (divides(tp, count) | divides(count, tp))
    return holds


UNCUT = {
    "conv": "convolution layers",
    "mamba": "Mamba layers of the first kind",
    "lightning": "lightning attention",
    "gated": "mLSTM layers",
}
"""What no framework trains with tp or cp."""


@lru_cache(maxsize=4096)
def uncut(m: Model) -> tuple[str, ...]:
    """Names of the model's layers that no framework cuts."""
    here, names = mixers(m), []
    if m.traced:
        return ()
    if "conv" in here:
        names.append(UNCUT["conv"])
    if "ssm" in here and m.ssm and m.ssm.kind in UNCUT:
        names.append(UNCUT[m.ssm.kind])
    if "linear" in here and m.linear and m.linear.kind in UNCUT:
        names.append(UNCUT[m.linear.kind])
    return tuple(names)


@lru_cache(maxsize=4096)
def exchanged_heads(m: Model) -> Mapping[str, int]:
    """Heads that tp x cp must divide: an all-to-all over cp gives each rank some of them whole."""
    here, cuts = mixers(m), {}
    if "linear" in here and m.linear:
        cuts["linear.key_heads"] = m.linear.keys
    if "ssm" in here and m.ssm:
        cuts["ssm.heads"] = m.ssm.heads
    return cuts


def most_exchanged(m: Model) -> int:
    """The largest tp x cp that cuts them."""
    return gcd(*exchanged_heads(m).values())


def over_cp(m: Model, tp: Any, cp: Any) -> Any:
    """Whether heads of a state can be cut tp x cp ways."""
    if m.traced:
        return (cp == 1) | (not m.traced.states)
    holds: Any = (tp * cp == 1) | (not uncut(m))
    for count in exchanged_heads(m).values():
        holds = holds & ((cp == 1) | divides(tp * cp, count))
    return holds
