"""Losses in pieces, and fused with the head: Liger's, torchtune's and cut cross entropy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright import Job, Layout, predict
from meshwright.count import vocabulary
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.describe.loss import losses, piece
from meshwright.describe.software import Software
from meshwright.formats import flags

T, V, H = 16384.0, 152064.0, 3584.0


def test_a_piece_is_as_large_as_the_input_of_the_head() -> None:
    """c = ceil(152064 / 3584) = 43, 16384 / 43 = 382 rows, so 512; never more than all."""
    assert piece(T, V, H) == 512
    # its authors' example
    assert piece(4096.0 * 4, 32000.0, 4096.0) == 2048
    assert piece(3.0, 100.0, 200.0) == 3
    columns = piece(np.array([T, 1.0]), V, H)
    assert columns.tolist() == [512, 1]


def test_bytes_by_hand() -> None:
    held, forward, backward = losses()["liger"].whole(T, V, H, 1)
    assert held == pytest.approx(2 * 512 * V + 2 * T * H + 8 * V * H)
    assert forward == pytest.approx(6 * T * V + 32 * 14 * V * H)
    assert backward == 4 * (T + V) * H


def test_it_frees_nearly_all_that_eager_logits_take() -> None:
    def bytes_of(loss: str) -> float:
        job = Job(
            "qwen2.5-7b",
            "4xh20",
            16,
            framework="deepspeed",
            seq=16384,
            software=Software(loss=loss),
        )
        layout = Layout(dp=4, zero=3, recompute="full")
        return predict(job, layout).memory_bytes["allocated"]

    saved = bytes_of("eager") - bytes_of("liger")
    assert saved == pytest.approx(14 * T * V - 2 * T * H - 8 * V * H, rel=0.02)


def test_torchtunes_chunks_by_hand() -> None:
    """An eighth of the rows at a time: what is kept of all, and the first or the second piece."""
    t, v, h = 8192.0, 128256.0, 3072.0
    piece_ = t / 8 * v
    held, forward, backward = losses()["linear chunks"].whole(t, v, h, 1)
    second = 4 * 7 * piece_ + 8 * piece_ + 2 * v * h
    assert held == second > 4 * t * v + 8 * piece_
    wide, *_ = losses()["linear chunks"].whole(8 * t, v, h, 1)
    assert wide == 8 * (4 * t * v + 8 * piece_)  # more rows: the first piece's
    assert forward == 22 * t * v
    assert backward == 26 * t * v + 7 * 8 * v * h
    held, *_ = losses()["compiled chunks"].whole(t, v, h, 1)
    assert held == 2 * t * v + 2 * v * h  # the second piece's moment
    held, *_ = losses()["chunks"].whole(t, v, h, 1)
    assert held == 6 * t * v + 4 * piece_
    few = losses()["chunks"].at_once(np.array([4.0, 20.0]), v, h)
    assert few.tolist() == [1, 3]


@pytest.mark.parametrize("name", [n for n in losses() if n != "liger"])
def test_a_loss_without_pieces_holds_so_many_bytes_a_logit(name: str) -> None:
    loss = losses()[name]
    if loss.pieces == 1:
        own = [each * T * V for each in loss.over(1)]
        assert [*loss.whole(T, V, H, 1)] == own


def test_a_cut_loss_keeps_no_logits_and_multiplies_once_more() -> None:
    """2 T V H more FLOPs, and no logit in memory."""
    job = Job("qwen2.5-7b", "4xh20", 8, framework="fsdp", seq=16384)
    layout = Layout(dp=4, zero=3, recompute="full")
    runs = {
        loss: predict(replace(job, software=Software(loss=loss)), layout)
        for loss in ("eager", "cut")
    }
    kept = {name: run.memory_bytes["allocated"] for name, run in runs.items()}
    # the most is then needed by a layer that runs again
    assert 0.8 < (kept["eager"] - kept["cut"]) / (14 * T * V) < 1
    assert [*losses()["cut"].whole(T, V, H, 1)] == [0, 0, 0]
    flops = {
        name: sum(
            float(op.forward.matrix + op.backward.matrix)
            for op in vocabulary.head(
                DeviceMicrobatch.from_layout(
                    replace(job, software=Software(loss=name)), layout
                )
            )
        )
        for name in runs
    }
    assert flops["cut"] - flops["eager"] == pytest.approx(2 * T * V * H)


SWIFT = """
# test_env: 4 * H20
# fa2: 4 * 43GiB
NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B --tuner_type full --dataset a \\
  --torch_dtype bfloat16 --per_device_train_batch_size 1 --gradient_accumulation_steps 4 \\
  --max_length 16384 --attn_impl flash_attn --deepspeed zero3 --use_liger_kernel true
"""


def test_a_published_run_takes_what_it_said(tmp_path: Path) -> None:
    """modelscope/ms-swift, examples/train/flash_attention_3/transformers.sh. Its time is that of
    packed documents, which attend to less than whole sequences do."""
    script = tmp_path / "a.sh"
    script.write_text(SWIFT)
    p = predict(flags.read_flags(str(script), {"on": "4xh20"}))
    assert p.memory_bytes["needed"] / 2**30 == pytest.approx(43, rel=0.05)
