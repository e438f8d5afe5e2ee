"""Part 5, training: what its worked numbers ask (`ask` of `published/scaling_book.json`).

Chips are TPU v5p, FSDP and mixtures on three torus axes, unless a name says otherwise.
"""

from __future__ import annotations

from meshwright.catalog import chip, network
from meshwright.num import Num, crossing
from meshwright.roofline import thresholds as th
from meshwright.roofline.memory import checkpoints, per_chip, states

from .ideal import Ideal, on_axes, overtakes
from .runs import seconds, training_flops
from .world import (
    CHIPS_PER_HOST,
    LLAMA_13B,
    V5P,
    alpha,
    book_setting,
    pod,
    world_layer,
)

F = 32768
"""Feed-forward width of the book's layer."""


def hbm_intensity(name: str) -> Num:
    """FLOPs a chip does for each byte of its memory."""
    return th.intensity(chip(name).peak("bf16"), chip(name).hbm_bandwidth)


def largest_model() -> Num:
    """Parameters whose weights and Adam state a chip holds."""
    return chip(V5P).hbm_bytes / states(1.0)


def alpha_of(flops: float) -> Num:
    """C/W with the FLOP/s as the text rounds them."""
    return th.intensity(flops, network(V5P).dims[0].bandwidth)


def fsdp_tokens() -> Num:
    """Tokens a chip needs for FSDP."""
    return th.data_tokens(world_layer(F), alpha(V5P, 3))


def fsdp_batch(chips: int) -> Num:
    """Tokens that so many chips need for FSDP."""
    return fsdp_tokens() * pod(chips).chips


def fsdp_chips(batch: float, slices: int = 1) -> Num:
    """Chips, or slices of so many, that a batch keeps busy with FSDP."""
    return batch / fsdp_tokens() / slices


def mixed_tokens(width: int, edition: str, m_x: int = 2, m_y: int = 1) -> Num:
    """Tokens a chip needs for the best mixture of FSDP and tensor parallelism."""
    return th.mixed_tokens(
        world_layer(width), alpha(V5P, m_x), alpha(V5P, m_y), edition
    )


def fsdp_over_mixed(edition: str) -> Num:
    """Tokens that FSDP needs over those of the best mixture."""
    return fsdp_tokens() / mixed_tokens(F, edition)


def mixed_batch(edition: str) -> Num:
    """Tokens that 4,096 chips need for the best mixture."""
    return pod(4096).chips * mixed_tokens(F, edition)


def mixed_chips(batch: float, width: int, edition: str) -> Num:
    """Chips that a batch keeps busy with the best mixture."""
    return batch / mixed_tokens(width, edition)


def best_data_degree(batch: Num, chips: int, width: int) -> Num:
    """Best data-parallel degree on two axes against one."""
    return th.best_split(
        world_layer(width),
        batch=batch,
        chips=chips,
        a_x=alpha(V5P, 2),
        a_y=alpha(V5P, 1),
    )


def best_degree_of_mixed_batch() -> Num:
    """The best degree at the batch from which a mixture is compute-bound on 4,096 chips."""
    return best_data_degree(mixed_batch("max"), 4096, F)


def tensor_limit(width: int, axes: float = 1, degree: int = 1) -> Num:
    """Largest tensor-parallel degree, over one that is taken."""
    return th.tensor_degree(world_layer(width), alpha(V5P, axes)) / degree


def width_for(degree: float, name: str) -> Num:
    """Feed-forward width that so much tensor parallelism needs: the degree over that of a width of
    1.
    """
    return degree / th.tensor_degree(world_layer(1), alpha(name))


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


def mixture_overtaking() -> Num | None:
    """Where 512 x 8 becomes cheaper than 256 x 16."""
    return overtakes(
        book_setting(),
        mesh=pod(4096),
        a=Ideal(512, 8, 2, 1),
        b=Ideal(256, 16, 2, 1),
        edition="sum",
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


def state_bytes() -> Num:
    """Weights and Adam state of 13 B parameters."""
    return states(LLAMA_13B)


def bytes_13b(tokens: float) -> Num:
    """Checkpoints, weights and Adam state of LLaMA-2 13B."""
    return checkpoint_bytes(tokens) + state_bytes()


def chip_13b(tokens: float) -> Num:
    """Bytes on one of 4096 chips."""
    return per_chip(LLAMA_13B, checkpoint_bytes(tokens), 4096, 4096)


def step_13b(tokens: float, flops: float = 0.0, share: float = 1.0) -> Num:
    """Seconds of a step of LLaMA-2 13B on 4,096 chips; flops: of a chip, as the text rounds
    them.
    """
    peak = flops or chip(V5P).peak("bf16")
    work = training_flops(LLAMA_13B, tokens)
    return seconds(work, pod(4096).chips, peak, share)


def time_per_token() -> Num:
    """Compute seconds of a token and layer on the 16^3 slice."""
    split = Ideal(512, 8, 2, 1)
    return split.times(book_setting(), pod(4096), 1e6).compute / 1e6


def fsdp_seconds() -> Num:
    """Communication of a layer with FSDP over 4,096 chips on three axes."""
    split = Ideal(4096, 1, 3, 0)
    return split.times(book_setting(), pod(4096), 1e6).comm("max")


def dcn_bandwidth(hosts: int) -> Num:
    """Bytes per second of the data-centre network of so many hosts."""
    return hosts * CHIPS_PER_HOST * network(V5P).dims[-1].bandwidth


def reduced_pod() -> Num:
    """Tokens a pod needs to hide its DCN all-reduce, from the book's rounded FLOP/s and bytes per
    second of a pod.
    """
    return th.intensity(3.8e18, 5e13)


def ratio(a: float, b: float) -> Num:
    """Of two printed numbers."""
    return a / b


def product(a: float, b: float) -> Num:
    """Of two printed numbers."""
    return a * b
