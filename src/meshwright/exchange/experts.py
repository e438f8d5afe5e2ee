"""Dispatchers: how tokens go to the experts of other ranks and come back. A `Dispatcher`, here or
in a file beside this one, is all that the package knows of one (docs/extend.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from ..num import Num
from .reach import Draw, expected_reach
from .types import Message


class Tokens(NamedTuple):
    """Tokens of one microbatch on one rank of experts, in bytes."""

    own: Num
    """Those of the rank, each once."""
    copies: Num
    """As many times as each has experts that work on it."""
    ep: Num
    etp: Num
    draw: Draw


class Traffic(NamedTuple):
    """What a rank sends one way, and what it moves in memory for that."""

    messages: tuple[Message, ...]
    moved: Num
    """Bytes read and written."""


class Measured(NamedTuple):
    """A number of kernels that somebody measured."""

    value: float
    source: str


@dataclass(frozen=True)
class NodeKernels:
    """Kernels that send a token once to each node (`cost.dispatch_kernels`), as messages named
    after their dispatcher.
    """

    share: Measured
    """Of the rate of a link inside a node, what they reach where it holds them up."""
    most: Measured = Measured(inf, "their multiprocessors hold up no link")
    """Bytes per second that the multiprocessors they run on bring into a link, however fast."""
    ordered: bool = False
    """They hand a rank its copies in the order of its experts: of others, as around an all-to-all,
    the host launches what counts, pads and sorts them."""


@dataclass(frozen=True)
class Dispatcher:
    """One way to bring tokens to experts: the passes forward of the way there and backward of the
    way back are `away`, the two others `back`.
    """

    name: str
    title: str
    """What the help of its flag says of it."""
    source: str
    away: Callable[[Tokens], Traffic]
    back: Callable[[Tokens], Traffic]
    kernels: NodeKernels | None = None
    """Its own; None: it sends by the library's collectives."""


def each_copy(tokens: Tokens) -> Traffic:
    """Each copy goes by itself: all are read and written twice, sorted by rank before the
    all-to-all and by expert after it.
    """
    return Traffic(
        (Message("all_to_all", "ep", tokens.copies),), 4.0 * tokens.copies
    )


def once_a_node(kernels: str) -> Callable[[Tokens], Traffic]:
    """A token is read where it is, and copied for its experts where it arrives: once read a rank,
    once written an expert.
    """

    def traffic(tokens: Tokens) -> Traffic:
        k = tokens.draw.copies
        read = expected_reach(tokens.ep, tokens.draw) / k
        sent = Message(kernels, "ep", tokens.copies, tokens.draw)
        return Traffic((sent,), (read + 1.0) * tokens.copies)

    return traffic


def gathered(tokens: Tokens) -> Traffic:
    """A rank gathers the tokens of all ranks of experts, etp ranks of each too, and picks the
    copies of its own: x = copies x etp bytes are read and written.
    """
    near = tokens.own * tokens.etp
    sent = (
        Message("all_gather", "etp", near),
        Message("all_gather", "ep", near * tokens.ep),
    )
    return Traffic(sent, 2.0 * tokens.copies * tokens.etp)


def scattered(tokens: Tokens) -> Traffic:
    """What experts return is added up to all tokens, which are reduce-scattered: zeros of all are
    written, and copies read and added to them (3 x).
    """
    near = tokens.own * tokens.etp
    whole = near * tokens.ep
    sent = (
        Message("reduce_scatter", "ep", whole),
        Message("reduce_scatter", "etp", near),
    )
    return Traffic(sent, whole + 3.0 * tokens.copies * tokens.etp)


ALLTOALL = Dispatcher(
    name="alltoall",
    title="an all-to-all of all copies",
    source="Lepikhin et al. 2020, arXiv 2006.16668 (GShard)",
    away=each_copy,
    back=each_copy,
)
ALLGATHER = Dispatcher(
    name="allgather",
    title="each rank gathers the tokens of all and picks its own",
    source="NVIDIA/Megatron-LM@d98e8a64, core/transformer/moe/token_dispatcher.py,"
    " MoEAllGatherTokenDispatcher",
    away=gathered,
    back=scattered,
)
DEEPEP = Dispatcher(
    name="deepep",
    title="DeepEP, which sends a token to a node only once",
    source="DeepSeek-AI 2024, arXiv 2412.19437, section 3.2; NVIDIA/Megatron-LM@d98e8a64,"
    " core/transformer/moe/token_dispatcher.py, _DeepepManager",
    away=once_a_node("deepep"),
    back=once_a_node("deepep"),
    kernels=NodeKernels(
        Measured(
            0.85,
            "deepseek-ai/DeepEP@ebfe47e4 (MIT), README.md and tests/test_intranode.py: 153 and 158"
            " GB/s on 8 H800 whose links reach 160, of which 7/8 leave a rank (0.84, 0.86)",
        ),
        Measured(
            275e9,
            "ai-dynamo/aiconfigurator@095f58a51 (Apache-2.0), comm/sglang/0.5.12, normal mode with"
            " 20 SMs as Megatron Core gives it, combine in 16 bits, 1,024 to 32,768 tokens of 8"
            " experts, beyond the start: medians of 267 GB/s on 8 H100, 268 on H200, 274 on B200,"
            " 277 on B300, 302 on GB200, 305 on GB300, whose links reach 369 and 720",
        ),
    ),
)
HYBRIDEP = Dispatcher(
    name="hybridep",
    title="HybridEP, which does the same and hands copies over in the order of experts",
    source="NVIDIA/Megatron-LM@d98e8a64, core/transformer/moe/token_dispatcher.py,"
    " _HybridEPManager",
    away=once_a_node("hybridep"),
    back=once_a_node("hybridep"),
    kernels=NodeKernels(
        Measured(
            0.87,
            "deepseek-ai/DeepEP 07eea0c0 (MIT), branch hybrid-ep, Hybrid-EP_Implementation.md,"
            " 2025-11: kernels in 16 bits on 8 B200 and on 8 to 36 GB200, 16 and 32 SMs"
            " (tests/published/hybridep.csv)",
        ),
        ordered=True,
    ),
)
