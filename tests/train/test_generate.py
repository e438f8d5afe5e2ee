"""Sampling from a run: the tokens a model is sure of, whatever layout wrote the checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from jobs import GPT, SETTINGS, job  # noqa: E402

from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.train import checkpoint  # noqa: E402
from meshwright.train.generate import chosen, generate, loaded, sampled_tokens  # noqa: E402
from meshwright.train.launch import fork_ranks  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.storage import Reader  # noqa: E402
from refusals import refusal  # noqa: E402
from shell import Shell  # noqa: E402


def trained(folder: Path) -> None:
    """A few steps on one sentence, over two stages with one matrix for embedding and head."""
    text = "abcdefghijklmnopqrstuvwxyz. " * 2
    ids = torch.tensor([[ord(c) for c in text[i : i + 33]] for i in range(8)])

    def work(device: torch.device) -> None:
        s = replace(SETTINGS, steps=60, lr=3e-3, warmup=5)
        trainer = Trainer(
            job(GPT, Layout(pp=2, dp=1, microbatch=4)), s, device
        )
        for step in range(s.steps):
            trainer.step(step, *trainer.share(ids))
        checkpoint.save(trainer, folder, s.steps, keep=1)

    fork_ranks(work, 2, timeout_s=120)


def test_it_goes_on_as_it_was_trained(tmp_path: Path, shell: Shell) -> None:
    trained(tmp_path)
    found = generate(
        tmp_path, "abcdefgh", 12, temperature=0, tokenizer="bytes"
    )
    assert found["text"] == "abcdefghijklmnopqrst" and found["tokens"] == 12
    words = f"generate {tmp_path} --prompt uvw --length 3 --temperature 0"
    assert shell(f"{words} --tokenizer bytes").out.strip() == "uvwxyz"
    assert "does not say what its tokens are: --tokenizer" in shell.refused(
        words
    )
    path = checkpoint.complete(tmp_path)[0]
    model = loaded(Reader(path), GPT)
    long = list(sampled_tokens(model, [97] * 40, 2, 1.0, 5, seed=3))
    assert long == list(sampled_tokens(model, [97] * 40, 2, 1.0, 5, seed=3)), (
        "the seed says all"
    )
    with refusal("neither a checkpoint nor the folder"):
        generate(tmp_path / "none", "a", 1, tokenizer="bytes")


def test_draws_are_among_the_likeliest() -> None:
    logits, random = (
        torch.tensor([0.0, 3.0, 2.0, 1.0]),
        torch.Generator().manual_seed(0),
    )
    assert {chosen(logits, 1.0, 2, random) for _ in range(100)} == {1, 2}
    assert {chosen(logits, 5.0, 0, random) for _ in range(200)} == {0, 1, 2, 3}
    assert chosen(logits, 0, 0, random) == 1
