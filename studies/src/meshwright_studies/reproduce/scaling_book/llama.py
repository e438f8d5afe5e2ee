"""Part 6, training LLaMA 3 on TPUs: each worked number, computed."""

from __future__ import annotations

from meshwright.catalog import chip
from meshwright.num import Num, floor
from meshwright.roofline.memory import checkpoints, per_chip, states
from meshwright.units import DAY_S, YEAR_S

from .ideal import compute_bound_splits
from .runs import days, flops_per_parameter, seconds, training_flops
from .training import F70B, Case, tokens_of_best_mixture, x_opt
from .world import (
    LLAMA_70B,
    LLAMA_TOKENS,
    MI,
    POD,
    V5P,
    all_parameters,
    alpha,
    attention_parameters,
    ffn_parameters,
    llama_flops,
    pod,
    vocabulary_parameters,
    world_layer,
)

BATCH = 4 * MI
"""Tokens a step."""
M70 = "llama3-70b"
M405 = "llama3-405b"
PRINTED_DAYS = 44
"""Days on one pod as the text rounds them before it goes on."""


def peak() -> Num:
    return chip(V5P).peak("bf16")


def bytes_of_checkpoints(each: float) -> Num:
    """Checkpoints of width D of 4e6 tokens, `each` a layer."""
    return checkpoints(80, 4e6, 8192, each)


def bytes_in_all(each: float) -> Num:
    """Bytes of weights, Adam state and checkpoints."""
    return states(LLAMA_70B) + bytes_of_checkpoints(each)


def on_chips(chips: Num) -> Num:
    """Days of the same work on fewer chips than a pod."""
    return PRINTED_DAYS * POD / chips


def few() -> Num:
    """Chips that hold the states and three checkpoints a layer."""
    return floor(bytes_in_all(3) / chip(V5P).hbm_bytes)


CASES: dict[str, Case] = {
    "P6-01": lambda: ffn_parameters(M70),
    "P6-02": lambda: vocabulary_parameters(M70),
    "P6-03": lambda: attention_parameters(M70),
    "P6-04": lambda: all_parameters(M70),
    "P6-05": lambda: flops_per_parameter() * LLAMA_70B,
    "P6-06": lambda: seconds(training_flops(LLAMA_70B, 1), 1, peak()),
    "P6-07": lambda: seconds(llama_flops(), 1, peak()) / YEAR_S,
    "P6-08": lambda: seconds(llama_flops(), POD, peak(), 0.4),
    "P6-09": lambda: days(llama_flops(), POD, peak(), 0.4),
    "P6-10": lambda: bytes_of_checkpoints(3),
    "P6-10b": lambda: bytes_of_checkpoints(4),
    "P6-10N": lambda: bytes_of_checkpoints(2),
    "P6-11": lambda: bytes_in_all(4),
    "P6-11N": lambda: bytes_in_all(2),
    "P6-12": lambda: 21.6e12 / chip(V5P).hbm_bytes,
    "P6-12N": lambda: 11.2e12 / chip(V5P).hbm_bytes,
    "P6-13": lambda: on_chips(few()),
    "P6-13b": lambda: on_chips(225) * DAY_S / YEAR_S,
    "P6-13N": lambda: on_chips(117),
    "P6-14": lambda: 21.6e12 / POD,
    "P6-14N": lambda: 11.2e12 / POD,
    "P6-15": lambda: per_chip(LLAMA_70B, bytes_of_checkpoints(12), POD, POD),
    "P6-16": lambda: 1024.0 * 8192,
    "P6-17": lambda: BATCH / POD,
    "P6-18": lambda: tokens_of_best_mixture(F70B, "sum"),
    "P6-18N": lambda: tokens_of_best_mixture(F70B, "max"),
    "P6-19": lambda: x_opt(4.19e6, POD, F70B),
    "P6-19old": lambda: compute_bound_splits(
        world_layer(F70B),
        batch=4.19e6,
        chips=POD,
        a_x=alpha(V5P, 2),
        a_y=alpha(V5P),
        edition="sum",
    )[1],
    "P6-20": lambda: BATCH / (4 * pod(POD).chips),
    "P6-20b": lambda: days(llama_flops(), 4 * POD, peak(), 0.4),
    "P6-21": lambda: all_parameters(M405),
    "P6-21b": lambda: training_flops(all_parameters(M405), LLAMA_TOKENS),
    "P6-21c": lambda: days(
        training_flops(all_parameters(M405), LLAMA_TOKENS),
        8 * POD,
        peak(),
        0.4,
    ),
    "P6-21d": lambda: tokens_of_best_mixture(53248, "sum"),
}
