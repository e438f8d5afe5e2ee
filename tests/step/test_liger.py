"""Liger's loss, fused with the head: rows of logits in pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshwright import Job, Layout, predict
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
