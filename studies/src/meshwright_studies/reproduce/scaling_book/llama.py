"""Part 6, training LLaMA 3 on TPUs: what its worked numbers ask (`ask` of
`published/scaling_book.json`).
"""

from __future__ import annotations

from meshwright.catalog import chip
from meshwright.num import Num, floor
from meshwright.roofline.memory import checkpoints, per_chip, states
from meshwright.units import DAY_S, YEAR_S

from .ideal import compute_bound_splits
from .runs import days, seconds, training_flops
from .world import (
    LLAMA_70B,
    LLAMA_TOKENS,
    POD,
    V5P,
    all_parameters,
    alpha,
    llama_flops,
    world_layer,
)

PRINTED_DAYS = 44
"""Days on one pod as the text rounds them before it goes on."""


def peak(name: str = V5P) -> Num:
    return chip(name).peak("bf16")


def flops_a_token() -> Num:
    """FLOPs of a token of LLaMA-3 70B."""
    return training_flops(LLAMA_70B, 1)


def chip_seconds_a_token() -> Num:
    """Seconds of a chip for a token."""
    return seconds(flops_a_token(), 1, peak())


def llama_chip_years() -> Num:
    """Years of one chip for the whole run."""
    return seconds(llama_flops(), 1, peak()) / YEAR_S


def llama_seconds(chips: float, share: float = 1.0, name: str = V5P) -> Num:
    """Seconds of the whole run at a share of the peak."""
    return seconds(llama_flops(), chips, peak(name), share)


def llama_days(chips: float, share: float = 1.0, name: str = V5P) -> Num:
    """Days of the whole run at a share of the peak."""
    return llama_seconds(chips, share, name) / DAY_S


def bytes_of_checkpoints(each: float) -> Num:
    """Checkpoints of width D of 4e6 tokens, `each` a layer."""
    return checkpoints(80, 4e6, 8192, each)


def bytes_in_all(each: float) -> Num:
    """Bytes of weights, Adam state and checkpoints."""
    return states(LLAMA_70B) + bytes_of_checkpoints(each)


def bytes_a_chip(each: float) -> Num:
    """Bytes of a chip of a pod."""
    return per_chip(LLAMA_70B, bytes_of_checkpoints(each), POD, POD)


def chips_holding(size: Num) -> Num:
    """Chips whose memories are of that size."""
    return size / chip(V5P).hbm_bytes


def days_on(chips: Num) -> Num:
    """Days of the same work on fewer chips than a pod."""
    return PRINTED_DAYS * POD / chips


def years_on(chips: float) -> Num:
    """The same in years."""
    return days_on(chips) * DAY_S / YEAR_S


def days_on_few() -> Num:
    """Days on the chips that hold the states and three checkpoints a layer."""
    return days_on(floor(chips_holding(bytes_in_all(3))))


def most_data_degree(batch: float, width: int) -> Num:
    """The largest data-parallel degree of a pod that is compute-bound."""
    _, most = compute_bound_splits(
        world_layer(width),
        batch=batch,
        chips=POD,
        a_x=alpha(V5P, 2),
        a_y=alpha(V5P),
        edition="sum",
    )
    return most


def flops_of_run(name: str) -> Num:
    """FLOPs of training a model on the tokens of LLaMA 3."""
    return training_flops(all_parameters(name), LLAMA_TOKENS)


def days_of_run(name: str, chips: int, share: float) -> Num:
    """Days of that at a share of the peak."""
    return days(flops_of_run(name), chips, peak(), share)
