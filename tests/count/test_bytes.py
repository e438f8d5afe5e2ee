"""Work and bytes of elementwise operations, counted by hand from what they read and write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import by_hand
from meshwright import Layout, Model, catalog
from meshwright.cost.shapes import kernel_seconds, rates
from meshwright.count import vocabulary
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.work import LOSS, Op, Pass
from meshwright.describe.assumptions import REALISTIC
from meshwright.describe.loss import losses
from meshwright.describe.software import LOSSES, Software
from meshwright.layout.placement import placed


def loss_of(framework: str, software: Software, tp: int) -> Op:
    """The loss of 128 tokens over 1,024 words, cut over tp."""
    layout = Layout(tp=tp, dp=1)
    job = replace(
        by_hand(layout).job,
        model=Model("loss", 2, 64, 4, 256, vocab=1024, seq=128),
        assumptions=REALISTIC,
        framework=framework,
        software=software,
    )
    at = DeviceMicrobatch.from_layout(job, placed(layout, (tp,)))
    return next(op for op in vocabulary.head(at) if op.name == "head/loss")


@pytest.mark.parametrize(
    ("framework", "software", "tp", "forward", "backward"),
    [
        # cast 2 + 4, largest 4, difference 8, exponentials 8, sum 4, quotient 8; product 8, cast 6
        ("megatron-core", Software(), 1, 38, 14),
        ("megatron-core", Software(), 4, 38, 14),
        ("megatron-2021", Software(), 1, 38, 14),
        ("megatron-core", Software(loss="fused"), 1, 30, 18),
        ("megatron-core", Software(loss="in place"), 1, 6, 4),
        ("megatron-bridge", Software(), 1, 6, 4),
        ("megatron-bridge", Software(loss="passes"), 1, 38, 14),
        ("torchtitan", Software(), 1, 4, 4),
        # cast 6, log-softmax 16; zeros 4, its gradient 16, cast 6
        ("torchtitan", Software(loss="eager"), 1, 22, 26),
        # logits as they are: log-softmax 8; zeros 2, its gradient 8
        ("automodel", Software(loss="narrow"), 1, 8, 10),
        # DTensor: difference, exponentials and result apart; exponentials, sum and product
        ("torchtitan", Software(loss="eager"), 2, 38, 38),
        # FlashAttention's kernel reads once; back it reads and writes the gradient in place
        ("llm-foundry", Software(), 1, 2, 4),
    ],
)
def test_a_loss_moves_what_its_code_reads_and_writes(
    framework: str, software: Software, tp: int, forward: int, backward: int
) -> None:
    """Bytes of each logit of a tp rank, pass by pass."""
    loss = loss_of(framework, software, tp)
    logits = 128 * 1024 / tp
    assert loss.forward.memory == pytest.approx(forward * logits)
    assert loss.backward.memory == pytest.approx(backward * logits)


def test_a_loss_on_gathered_logits_is_that_of_all_of_them() -> None:
    """On each of four ranks torch's loss of the whole vocabulary, whose 16-bit parts the others
    send: what is kept of it is counted with the logits."""
    loss = loss_of("megatron-deepspeed", Software(logits_gathered=True), 4)
    logits = 128 * 1024
    # beside torch's 22: an argmax, and two copies of what was gathered
    assert loss.forward.memory == (22 + 4 + 2 * 4) * logits
    assert loss.backward.memory == 26 * logits
    (sent,) = loss.forward.comm
    assert (sent.kind, sent.axis, sent.bytes) == (
        "all_gather",
        "tp",
        2 * logits,
    )
    assert loss.saved == 4 * logits / 4


def test_a_loss_takes_what_its_bytes_take_on_the_chip() -> None:
    """A B200's kernels reach half of what other passes do on rows of logits, an A100's nearly as
    much; and nothing that a framework fuses makes them fewer."""
    for chip, share in (("b200", 0.5), ("a100-80", 0.9)):
        shapes = rates(catalog.chip(chip), "bf16", "bf16", REALISTIC.chip)
        work = Pass(0.0, 0.0, 1e9, kernel=LOSS)
        launch, traffic = kernel_seconds(work, shapes)
        assert traffic == pytest.approx(1e9 / shapes.memory / share)
    # all but that of gathered logits can be asked for
    assert {*losses()} == {*LOSSES, "gathered"}
