"""Part 5, training: each worked number of the text, computed. id -> the library's own answer."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.catalog import chip, network
from meshwright.num import Num, crossing
from meshwright.roofline import thresholds as th
from meshwright.roofline.memory import checkpoints, per_chip, states

from .ideal import Ideal, on_axes, overtakes
from .runs import days, seconds, training_flops
from .world import (
    CHIPS_PER_HOST,
    LLAMA_13B,
    MI,
    POD,
    V4P,
    V5E,
    V5P,
    all_parameters,
    alpha,
    alpha_dcn,
    attention_parameters,
    book_setting,
    ffn_parameters,
    llama_flops,
    pod,
    vocabulary_parameters,
    world_layer,
)

Case = Callable[[], Num | None]
F32K = 32768
F30K = 30000
F70B = 28672
F13B = 13824


def fsdp(axes: float = 3) -> Num:
    """Tokens a chip needs for FSDP on v5p."""
    return th.data_tokens(world_layer(F32K), alpha(V5P, axes))


def tokens_of_best_mixture(
    F: int, edition: str, m_x: int = 2, m_y: int = 1
) -> Num:
    """Tokens a chip needs for the best mixture on v5p."""
    return th.mixed_tokens(
        world_layer(F), alpha(V5P, m_x), alpha(V5P, m_y), edition
    )


def x_opt(batch: Num, chips: Num, F: int) -> Num:
    """Best data-parallel degree on two axes against one."""
    return th.best_split(
        world_layer(F),
        batch=batch,
        chips=chips,
        a_x=alpha(V5P, 2),
        a_y=alpha(V5P, 1),
    )


def tensor_limit(F: int, axes: float = 1) -> Num:
    """Largest tensor-parallel degree on v5p."""
    return th.tensor_degree(world_layer(F), alpha(V5P, axes))


def width_for(degree: float, name: str) -> Num:
    """Feed-forward width that so much tensor parallelism needs: the degree over that of a width of
    1.
    """
    return degree / float(th.tensor_degree(world_layer(1), alpha(name)))


def cube() -> Num:
    """Chips of the 16 x 16 x 16 slice of the plots."""
    return pod(4096).chips


def split_threshold(
    x: int, y: int, edition: str, m_x: float, m_y: float = 1
) -> Num | None:
    """Batch from which X x Y on the 16^3 slice is compute-bound."""
    return Ideal(x, y, m_x, m_y).threshold(book_setting(), pod(4096), edition)


def widget(x: int) -> Num | None:
    """The explorer's crossover: axes counted as ceil(log16 n) for each group by itself."""
    return on_axes(x, 4096 // x, 16).threshold(
        book_setting(), pod(4096), "max"
    )


def phantom() -> Num | None:
    """Where 4096-way FSDP becomes cheaper than 512 x 8, with the tensor-parallel cost that the plot
    adds at Y = 1.
    """
    s, m = book_setting(), pod(4096)
    # any Y > 1 shows the activations of one of 4096 data shards on one axis
    extra = Ideal(4096, 2, 3, 1)
    mixture = Ideal(512, 8, 2, 1)

    def gap(batch: float) -> float:
        alone = (
            Ideal(4096, 1, 3, 1).times(s, m, batch).comm("sum")
            + extra.times(s, m, batch).tensor.seconds
        )
        return float(mixture.times(s, m, batch).comm("sum") - alone)

    return crossing(gap)


def checkpoint_bytes(tokens: float) -> Num:
    """Checkpoints of the three feed-forward outputs of each layer of LLaMA-2 13B, F = 2.7 D."""
    return checkpoints(40, tokens, 5120 * (1 + 2 * 2.7))


def states_13b() -> Num:
    """Weights and Adam state of 13 B parameters."""
    return states(LLAMA_13B)


def chip_13b(tokens: float) -> Num:
    """Bytes on one of 4096 chips."""
    return per_chip(LLAMA_13B, checkpoint_bytes(tokens), 4096, 4096)


def time_per_token() -> Num:
    """Compute seconds of a token and layer on the 16^3 slice."""
    return (
        float(
            Ideal(512, 8, 2, 1).times(book_setting(), pod(4096), 1e6).compute
        )
        / 1e6
    )


def reduced_pod() -> Num:
    """Tokens a pod needs to hide its DCN all-reduce, from the book's rounded FLOP/s and bytes per
    second of a pod.
    """
    return th.intensity(3.8e18, 5e13)


CASES: dict[str, Case] = {
    "P5-01": lambda: th.intensity(
        chip(V5E).peak("bf16"), chip(V5E).hbm_bandwidth
    ),
    "P5-02": lambda: chip(V5P).hbm_bytes / float(states(1.0)),
    "P5-03": lambda: alpha(V5P),
    "P5-03b": lambda: th.intensity(4.6e14, network(V5P).dims[0].bandwidth),
    "P5-04": fsdp,
    "P5-05": lambda: fsdp() * pod(POD).chips,
    "P5-06": lambda: 40e6 / fsdp(),
    "P5-06b": lambda: 40e6 / fsdp() / pod(POD).chips,
    "P5-07": llama_flops,
    "P5-08": lambda: 16e6 / fsdp(),
    "P5-09": lambda: days(llama_flops(), 18823, chip(V5P).peak("bf16"), 0.5),
    "P5-10": lambda: alpha(V5P, precision="int8"),
    "P5-11": lambda: width_for(8, V5P),
    "P5-11b": lambda: width_for(8, V4P),
    "P5-12": lambda: tensor_limit(30000),
    "P5-13": lambda: tensor_limit(50000),
    "P5-14": lambda: x_opt(48000, 64, F32K),
    "P5-14b": lambda: x_opt(48 * 1024, 64, F32K),
    "P5-15": lambda: tokens_of_best_mixture(F32K, "sum"),
    "P5-15N": lambda: tokens_of_best_mixture(F32K, "max"),
    "P5-16": lambda: fsdp() / tokens_of_best_mixture(F32K, "sum"),
    "P5-16N": lambda: fsdp() / tokens_of_best_mixture(F32K, "max"),
    "P5-17": lambda: cube() * tokens_of_best_mixture(F32K, "sum"),
    "P5-17N": lambda: cube() * tokens_of_best_mixture(F32K, "max"),
    "P5-18": lambda: split_threshold(512, 8, "sum", 2),
    "P5-18N": lambda: split_threshold(512, 8, "max", 2),
    "P5-19": phantom,
    "P5-19b": lambda: overtakes(
        book_setting(),
        mesh=pod(4096),
        a=Ideal(512, 8, 2, 1),
        b=Ideal(256, 16, 2, 1),
        edition="sum",
    ),
    "P5-20": lambda: x_opt(
        cube() * tokens_of_best_mixture(F32K, "max"), cube(), F32K
    ),
    "P5-21": lambda: tokens_of_best_mixture(F30K, "sum"),
    "P5-21N": lambda: tokens_of_best_mixture(F30K, "max"),
    "P5-22": lambda: 2e6 / fsdp(),
    "P5-23": lambda: 2e6 / tokens_of_best_mixture(F30K, "sum"),
    "P5-23N": lambda: 2e6 / tokens_of_best_mixture(F30K, "max"),
    "P5-24": lambda: 3.5e6 / pod(POD).chips,
    "P5-25": lambda: x_opt(3.5e6, pod(POD).chips, F30K),
    "P5-26": lambda: 1.5e6 / pod(POD).chips,
    "P5-27": lambda: pod(POD).chips,
    "P5-28": lambda: pod(POD).chips / CHIPS_PER_HOST,
    "P5-29": lambda: 2000 * CHIPS_PER_HOST * network(V5P).dims[-1].bandwidth,
    "P5-30": lambda: 8000 * 4.5e14,
    "P5-31": reduced_pod,
    "P5-31b": alpha_dcn,
    "P5-31N": alpha_dcn,
    "P5-31Nb": alpha_dcn,
    "P5-32": lambda: 40e6 / (10 * pod(POD).chips),
    "P5-33": lambda: days(llama_flops(), 10 * POD, chip(V5P).peak("bf16")),
    "P5-33b": lambda: days(
        llama_flops(), 10 * POD, chip(V5P).peak("bf16"), 0.4
    ),
    "P5-Q1a": lambda: ffn_parameters("llama2-13b"),
    "P5-Q1b": lambda: attention_parameters("llama2-13b"),
    "P5-Q1b2": lambda: attention_parameters("llama2-13b", layers=1),
    "P5-Q1c": lambda: vocabulary_parameters("llama2-13b"),
    "P5-Q1d": lambda: all_parameters("llama2-13b"),
    "P5-Q2a": states_13b,
    "P5-Q2b": lambda: checkpoint_bytes(16e6),
    "P5-Q2c": lambda: 16e6,
    "P5-Q3a": lambda: 3 * MI / 32768,
    "P5-Q3b": lambda: cube() * chip(V5P).hbm_bytes,
    "P5-Q3c": lambda: checkpoint_bytes(3e6),
    "P5-Q3d": lambda: checkpoint_bytes(3e6) + states_13b(),
    "P5-Q3e": lambda: chip_13b(3e6),
    "P5-Q3f": lambda: fsdp() * cube(),
    "P5-Q3g": lambda: tokens_of_best_mixture(F13B, "sum"),
    "P5-Q3g2": lambda: 3e6 / cube(),
    "P5-Q3gN": lambda: tokens_of_best_mixture(F13B, "max"),
    "P5-Q3hN": lambda: x_opt(3e6, cube(), F13B),
    "P5-Q3iN": lambda: seconds(
        training_flops(LLAMA_13B, 3e6), cube(), 4.6e14, 0.4
    ),
    "P5-Q3i": lambda: seconds(
        training_flops(LLAMA_13B, 3e6), cube(), chip(V5P).peak("bf16")
    ),
    "P5-Q4a": lambda: 1e6 / cube(),
    "P5-Q4b": lambda: 1e7 / cube(),
    "P5-Q4c": lambda: chip_13b(1e6),
    "P5-Q4d": lambda: chip_13b(1e7),
    "P5-Q4e": lambda: x_opt(1e6, cube(), F13B),
    "P5-F1": lambda: tensor_limit(F30K, axes=3) / pod(64).chips,
    "P5-F2": lambda: tokens_of_best_mixture(F30K, "sum"),
    **{f"P5-W{x}": (lambda x=x: widget(x)) for x in (4096, 2048, 1024, 512)},  # type: ignore[misc]
    "P5-W256": lambda: F32K / 16,
    "P5-Wm": time_per_token,
    "P5-Wf": lambda: (
        Ideal(4096, 1, 3, 0).times(book_setting(), pod(4096), 1e6).comm("max")
    ),
}
