"""Limits in closed form: where bandwidth, and where latency, ends linear scaling, if everything is
balanced.

Letters: C multiply-adds/s of one accelerator (the paper takes a whole 8-GPU node for one), d' side
of the square slice of a weight matrix it holds, b' tokens of a nanobatch, t duration of the run,
t_L latency of one layer's product, L layers, E experts, b tokens of a batch. T in multiply-adds
inside, in FLOPs (twice that) outside. Chosen as in the paper: PP = L, EP = E, 2 L microbatches, the
least d' and b' that hide communication. Source: Erdil & Schneider-Joseph 2024, arXiv 2411.01137,
section 5 (equations 13-18) and appendix 8.3.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated

from ..describe.chip import Chip
from ..describe.fields import SIUnit
from ..describe.network import Network
from ..errors import BadInput
from ..num import Num
from ..units import YEAR_S
from .laws import LAWS, Law

FLOP_PER_MAC = 2.0
WORD = 2.0
"""Bytes of an element."""
BANDWIDTH_CONSTANT = 960.0
"""Equation 13 is X^2 / (960 E): T = 60 N^2/E, N_crit = b N/(4 L E d'^2 b'), and N_crit C t = T."""
LATENCY_CONSTANT = 320.0 / 3.0
"""Equation 18 is 3 X^2 / (320 E), nine times equation 14: only the critical path of one microbatch
is left.
"""
FIRST_FLOPS = 3e23
"""T0: training FLOPs of GPT-3, from which batches are scaled."""
MACS_A_PARAMETER = 60.0
"""T = 60 N^2/E multiply-adds: 3 passes over N parameters for each of 20 N tokens."""
RESIDENT = 4.0
"""Memory on the chip, in slices d'^2, that lets weights and gradients stay there, so that small
nanobatches do.
"""
SMALL_NANOBATCH = 16.0
"""Tokens of a nanobatch when weights stay on the chip."""


@dataclass(frozen=True)
class Accelerator:
    """An accelerator of the closed forms: a node of several chips taken for one. Words are elements
    of 2 bytes.
    """

    macs_per_s: float
    network_words_per_s: float
    """One way."""
    memory_words_per_s: float
    """One way: half of what reads and writes reach together."""
    sram_words: float
    """Caches, shared memory and registers."""


@dataclass(frozen=True)
class Setting:
    """The run and the hardware around the node."""

    batch: Annotated[float, SIUnit("token")] = 4e6
    layers: float = 100.0
    experts: float = 1.0
    duration_s: Annotated[float, SIUnit("s")] = YEAR_S / 4
    layer_latency_s: Annotated[float, SIUnit("s")] = 9e-6
    """t_L: two phases on two levels of 1.125 us each, and a kernel of 4.5 us."""
    growth: float = 0.0
    """a: b/L grows with the training FLOPs T as (T/T0)^a, `batch` and `layers` being those at
    T0.
    """


def node(chip: Chip, network: Network, precision: str = "fp16") -> Accelerator:
    """The node of a chip: as many as the first network dimension joins; its link is the second one.

    Raises BadInput if the chip has no memory hierarchy. With three dimensions or more the second is
    meant.
    """
    if chip.hierarchy is None:
        raise BadInput(
            f"chip {chip.name} has no memory hierarchy in its data (chip.hierarchy), which the"
            " closed forms need"
        )
    h = chip.hierarchy
    near = network.dims[0]
    # a network of one dimension is near and far at once
    far = network.dims[min(1, len(network.dims) - 1)]
    chips = float(near.size or 1)
    sram = h.l2_bytes + h.sms * (4 * h.register_bytes + h.shared_bytes)
    memory = chip.hbm_bandwidth / 2
    macs = chip.peak(precision) / FLOP_PER_MAC
    return Accelerator(
        chips * macs,
        chips * far.rate() / WORD,
        chips * memory / WORD,
        chips * sram / WORD,
    )


def slice_side(n: Accelerator) -> float:
    """d' = 4 C / (3 B_net): smaller slices and tensor-parallel traffic outlasts the products
    (equation 16).
    """
    return 4 * n.macs_per_s / (3 * n.network_words_per_s)


def nanobatch(n: Accelerator, side: float) -> float:
    """b' = 16 if weights stay on the chip (S >= 4 d'^2), else C / B_DRAM: reading them takes as
    long as using them.
    """
    stays = n.sram_words / side**2 >= RESIDENT
    return SMALL_NANOBATCH if stays else n.macs_per_s / n.memory_words_per_s


def bandwidth_reach(
    n: Accelerator, s: Setting, side: float, tokens: float
) -> float:
    """X = C t / (d'^2 b'): products of one slice and nanobatch that fit into the run."""
    return n.macs_per_s * s.duration_s / (side**2 * tokens)


def latency_reach(s: Setting) -> float:
    """X = t / t_L: layers that fit into the run one after the other."""
    return s.duration_s / s.layer_latency_s


def scaled_flops(
    s: Setting,
    reach: Num,
    exponent: Num,
    constant: float = BANDWIDTH_CONSTANT,
    macs: bool = False,
) -> Num:
    """T in FLOPs, X reached, if b/L grows as (T/T0)^a: (T/2)^(1 - 2a) = (b0/L0 T0^-a X)^2 /
    (constant E) (appendix 8.3); with a = 0 equations 13 and 14, or 18 with its constant.

    exponent: a < 1/2.  macs = False inserts T0 in FLOPs where T is in
    multiply-adds, as the paper's numbers do; True puts both in multiply-adds.
    """
    base = FIRST_FLOPS / FLOP_PER_MAC if macs else FIRST_FLOPS
    power = 1 / (1 - 2 * exponent)
    return (
        FLOP_PER_MAC
        * (
            (s.batch / s.layers * base ** (-exponent) * reach) ** 2
            / (constant * s.experts)
        )
        ** power
    )


@dataclass(frozen=True)
class ClosedForms:
    """Closed forms of one machine and run."""

    slice_side: float
    nanobatch: float
    sram_slices: float
    """S / d'^2."""
    critical_flops: float
    """End of linear scaling by bandwidth."""
    latency_critical_flops: float
    """End of linear scaling by latency."""
    limit_flops: float
    """Largest run at all."""
    limit_parameters: float

    @property
    def linear_flops(self) -> float:
        """End of linear scaling."""
        return min(self.critical_flops, self.latency_critical_flops)

    def to_dict(self) -> dict[str, float]:
        """The fields of `limits --json`."""
        return asdict(self)


def under_law(s: Setting, law: Law) -> Setting:
    """The setting of a law: the paper's tokens a layer at T0, times the law's batch over the
    baseline's there, growing as the law has it.
    """
    more = float(law.batch(FIRST_FLOPS) / LAWS["baseline"].batch(FIRST_FLOPS))
    return replace(s, batch=s.batch * more, growth=law.growth)


def closed_forms(n: Accelerator, s: Setting) -> ClosedForms:
    """Everything section 5 and appendix 8.3 say about a node and a run."""
    side = slice_side(n)
    tokens = nanobatch(n, side)

    def flops(reach: float, constant: float = BANDWIDTH_CONSTANT) -> float:
        return float(scaled_flops(s, reach, s.growth, constant, macs=True))

    limit = flops(latency_reach(s), LATENCY_CONSTANT)
    return ClosedForms(
        slice_side=side,
        nanobatch=tokens,
        sram_slices=n.sram_words / side**2,
        critical_flops=flops(bandwidth_reach(n, s, side, tokens)),
        latency_critical_flops=flops(latency_reach(s)),
        limit_flops=limit,
        limit_parameters=(
            limit * s.experts / (FLOP_PER_MAC * MACS_A_PARAMETER)
        )
        ** 0.5,
    )
