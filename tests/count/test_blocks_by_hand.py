"""Single operations of a layer, multiplied out by hand with sizes that tell every factor apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout, catalog
from meshwright.count import blocks
from meshwright.count.model import layer
from meshwright.describe.layers import kinds
from meshwright.layout.placement import placed

T, N = 100.0, 7.0


def test_a_bias_reads_its_input_and_itself_and_keeps_its_input() -> None:
    """Y = X + b over T x N elements of 2 bytes, b in 4: one read of X, N numbers of b."""
    op = blocks.bias("x", T, N, act=2.0, wgt=4.0)
    assert op.forward.vector == T * N
    assert op.forward.memory == T * N * 2 + N * 4
    assert op.needs == T * N * 2
    assert op.weights == N


def test_a_chain_of_passes_reads_its_inputs_and_writes_its_result() -> None:
    """Bias, dropout and residual sum of x numbers of 2 bytes as one kernel: reads two, writes one,
    and a mask of one byte each; backward each has its own gradient.
    """
    x, act = 4096.0, 2.0
    chain = (
        blocks.bias("b", x, 1.0, act=act, wgt=2.0, chained=True),
        blocks.dropout("d", x, act=act, chained=True),
        blocks.residual("r", x, act=act),
    )
    assert sum(op.forward.memory for op in chain) == 2.0 + x + 3 * x * act
    alone = (
        blocks.bias("b", x, 1.0, act=act, wgt=2.0),
        blocks.dropout("d", x, act=act),
    )
    for one, other in zip(chain, alone, strict=False):
        assert one.backward == other.backward
        assert one.forward.vector == other.forward.vector
        assert one.saved == other.saved


def test_causal_softmax_reads_the_scores_that_the_mask_leaves() -> None:
    """Kernel by kernel: write, read half and write, (read, write and mask,) read; backward write
    and read, (read, mask and write,) two halves and write, read twice.
    """
    assert blocks.score_passes(False, "causal") == (
        1 + 0.5 + 1 + 1,
        1 + 1 + 2 * 0.5 + 1 + 2,
    )
    assert blocks.score_passes(True, "causal") == (
        1 + 0.5 + 1 + 1 + 1 + 0.5 + 1,
        1 + 1 + 1 + 0.5 + 1 + 2 * 0.5 + 1 + 2,
    )
    fp32 = 2  # of 16-bit scores
    casts = 1 + fp32, 2 * fp32, 2 * fp32, 2 * fp32, fp32 + 1
    undone = 1 + fp32, 3 * fp32, 4 * fp32, 2 * fp32, fp32 + 1
    assert blocks.score_passes(False, "fp32") == (
        1 + sum(casts) + 1,
        2 + sum(undone) + 2,
    )


@pytest.mark.parametrize(
    ("seq", "software", "passes"),
    [
        (4096, "megatron-2021", (6.0, 8.5)),
        (8192, "megatron-2021", (5.0, 8.0)),  # no kernel for rows so long
        (4096, "fsdp", (5.0, 8.0)),
    ],
)
def test_megatron_softmax_is_for_short_sequences(
    seq: int, software: str, passes: tuple[float, float]
) -> None:
    gpt = replace(catalog.model("gpt3-1.3b"), dropout=True)
    job = Job(
        gpt,
        "8xa100-80",
        8,
        seq=seq,
        framework=software,
        attention_kernel="unfused",
    )
    layout = placed(Layout(dp=8), job.cluster.sizes)
    core = next(
        op
        for op in layer(job, layout, kinds(gpt)[0])
        if op.name == "attention/core"
    )
    scores = 2.0 * gpt.heads * seq * seq
    halves = core.forward.memory, core.backward.memory
    # all else is queries, keys, values and the result: less than three tenths of the scores
    for half, times in zip(halves, passes, strict=True):
        assert times < half / scores < times + 0.3
