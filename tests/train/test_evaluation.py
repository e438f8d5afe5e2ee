"""Learning-rate schedules, blends of files, what is held out, and the loss on it under layouts."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from jobs import LLAMA, SEQ, SETTINGS, each_rank, job, loss_and_norm  # noqa: E402
from small_runs import rows  # noqa: E402
from test_nonfinite import diverging  # noqa: E402
from torch.nn import functional as fn  # noqa: E402

from layouts import cut  # noqa: E402
from meshwright.cli import main as cli  # noqa: E402
from meshwright.compare import compare  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.describe.training import Settings  # noqa: E402
from meshwright.formats.run_folder import read_run  # noqa: E402
from meshwright.train import data, feed, texts  # noqa: E402
from meshwright.train.initial import initialise  # noqa: E402
from meshwright.train.loop import Trainer, rate  # noqa: E402
from meshwright.train.model import Decoder  # noqa: E402
from meshwright.train.session import evaluate  # noqa: E402
from meshwright.train.storage import Writer  # noqa: E402
from meshwright.units import show  # noqa: E402
from refusals import refusal  # noqa: E402


def rates(**given: object) -> list[float]:
    s = replace(Settings(steps=20, lr=1.0, warmup=4, final_lr=0.0), **given)  # type: ignore[arg-type]
    return [rate(s, step) for step in range(s.steps)]


def test_schedules() -> None:
    """All rise alike; then, by hand: linear in 15 equal steps from the fifth on; half a cosine
    between the same ends; as it is until five steps before the end, then by fifths; as it is.
    """
    rise = [0.25, 0.5, 0.75, 1.0]
    linear = [1 - i / 15 for i in range(16)]
    assert rates(schedule="linear") == pytest.approx(rise + linear)
    cosine = rates(schedule="cosine")
    assert cosine[:5] == [*rise, 1.0] and cosine[-1] == pytest.approx(0.0)
    assert cosine[4 + 5] == pytest.approx(0.75) and cosine[
        4 + 10
    ] == pytest.approx(0.25)
    wsd = rates(schedule="wsd", decay=5)
    assert wsd == pytest.approx([*rise, *[1.0] * 11, 0.8, 0.6, 0.4, 0.2, 0.0])
    assert rates(schedule="wsd")[-3:] == pytest.approx([1.0, 0.5, 0.0]), (
        "a tenth of 20 steps"
    )
    assert rates(schedule="constant") == [*rise, *[1.0] * 16]
    assert rates(schedule="linear", final_lr=0.1)[-1] == pytest.approx(0.1)


def token_file(path: Path, first: int, sequences: int) -> Path:
    """Sequences of 8 tokens: the i-th is all first + i."""
    tokens = np.repeat(np.arange(first, first + sequences), 8)
    texts.write_texts(path, [np.append(tokens, 0)], 256, "bytes", "test")
    return path


def test_a_blend_gives_each_file_its_share(tmp_path: Path) -> None:
    a, b, c = (
        token_file(tmp_path / n, i * 50, 20) for i, n in enumerate("abc")
    )
    blend = data.opened(f"{a} 0.5, {b} 0.2,{c} 0.3", 256, 8, seed=1)
    drawn = [int(row[0]) // 50 for row in blend.samples(0, 40)]
    for n in (10, 20, 40):
        assert Counter(drawn[:n]) == {0: n // 2, 1: n // 5, 2: 3 * n // 10}
    assert blend.samples(7, 5).tolist() == blend.samples(0, 40)[7:12].tolist()
    alone = data.File(a, 256, 8, seed=1).samples(0, 20)
    assert (
        blend.samples(0, 40)[
            [i for i, k in enumerate(drawn) if k == 0]
        ].tolist()
        == alone.tolist()
    )
    sizes = data.opened(
        f"{a}, {token_file(tmp_path / 'd', 150, 60)}", 256, 8, seed=1
    )
    assert Counter(int(row[0]) >= 150 for row in sizes.samples(0, 40)) == {
        True: 30,
        False: 10,
    }
    for words in (
        f"{a} 0.5, {b}",
        f"{a} 0, {b} 1",
        f"{a} -1, {b} 1",
        f"{a} inf, {b} 1",
    ):
        with refusal("share"):
            data.opened(words, 256, 8, seed=1)


def test_what_is_held_out_is_never_trained_on(tmp_path: Path) -> None:
    """Of one file its end; of a blend the end of each, by its share."""
    a, b = (
        token_file(tmp_path / "a", 0, 20),
        token_file(tmp_path / "b", 100, 20),
    )
    for words, held in ((f"{a}", 3), (f"{a} 0.5, {b} 0.5", 4)):
        source = data.opened(words, 256, 8, 1, held)
        trained = {int(row[0]) for row in source.samples(0, 200)}
        apart = data.opened(words, 256, 8, 1, held, evaluation=True)
        kept = [int(row[0]) for row in apart.samples(0, held)]
        assert (apart.samples(held, held) == apart.samples(0, held)).all()
        assert len(set(kept)) == held and not trained & set(kept)
        assert len(trained) + held == 20 * (1 + ("," in words))
    with refusal("none is left to train on"):
        data.opened(f"{a}", 256, 8, 1, 20)


@pytest.mark.parametrize(
    "layout",
    [
        cut("tp2 pp2 microbatch2"),
        cut("pp2 dp2 zero2 microbatch1 zbv"),
        cut("cp2 dp2 zero3 microbatch4"),
    ],
    ids=["tp2 pp2", "zbv dp2", "cp2 dp2 zero3"],
)
def test_it_is_the_loss_of_one_process_and_changes_nothing(
    layout: Layout,
) -> None:
    """Two batches of eight; afterwards the weights are shards again, and a step is possible."""
    whole = torch.randint(
        256, (16, SEQ + 1), generator=torch.Generator().manual_seed(5)
    )
    decoder = Decoder(LLAMA, range(4), SEQ)
    initialise(decoder, LLAMA, SETTINGS.seed)
    want = fn.cross_entropy(
        decoder(whole[:, :-1]).flatten(0, 1), whole[:, 1:].flatten()
    ).item()

    def work(device: torch.device) -> tuple[float, float]:
        trainer = Trainer(job(LLAMA, layout), SETTINGS, device)
        kinds = {name: type(p) for name, p in trainer.parameters().items()}
        own = [
            x.chunk(int(layout.dp))[trainer.mesh.replica]
            for x in whole.chunk(2)
        ]
        found = evaluate(trainer, [(*trainer.share(x), ((0,),)) for x in own])
        assert {
            name: type(p) for name, p in trainer.parameters().items()
        } == kinds
        loss, _ = loss_and_norm(trainer, *trainer.share(own[0]))
        return found, loss

    first = fn.cross_entropy(
        decoder(whole[:8, :-1]).flatten(0, 1), whole[:8, 1:].flatten()
    ).item()
    for found in each_rank(work, layout.chips):
        assert found == pytest.approx((want, first), abs=1e-5)


def alone(
    decoder: Decoder, row: torch.Tensor, begins: tuple[int, ...]
) -> torch.Tensor:
    """Logits of a sequence whose documents go through the model one by one."""
    found = []
    for a, b in zip(begins, (*begins[1:], len(row)), strict=True):
        decoder.at = (range(b - a),)
        found.append(decoder(row[None, a:b])[0])
    return torch.cat(found)


@pytest.mark.parametrize(
    "layout",
    [
        cut("cp2 pp2 microbatch2"),
        cut("tp2 microbatch4 full"),
    ],
    ids=["cp2 pp2", "tp2 full"],
)
def test_documents_do_not_see_each_other(layout: Layout) -> None:
    """Loss and gradient norm are those of each document alone; positions of rotary models are
    relative.
    """
    whole = torch.randint(
        256, (8, SEQ + 1), generator=torch.Generator().manual_seed(6)
    )
    whole[::2, 11] = whole[1::3, 20] = whole[3, 0] = 0
    begins = data.begins(whole[:, :-1].numpy(), 0)
    assert (
        begins[0] == (0, 12)
        and begins[3] == (0, 1)
        and begins[4] == (0, 12, 21)
    )
    decoder = Decoder(LLAMA, range(4), SEQ)
    initialise(decoder, LLAMA, SETTINGS.seed)
    rows = zip(whole[:, :-1], begins, strict=True)
    logits = torch.cat([alone(decoder, row, of) for row, of in rows])
    want = fn.cross_entropy(logits, whole[:, 1:].flatten())
    want.backward()  # type: ignore[no-untyped-call]
    size = torch.nn.utils.get_total_norm(
        [p.grad for p in decoder.parameters() if p.grad is not None]
    )

    def work(device: torch.device) -> tuple[float, float]:
        trainer = Trainer(job(LLAMA, layout), SETTINGS, device)
        trainer.pack(begins)
        return loss_and_norm(trainer, *trainer.share(whole))

    for found in each_rank(work, layout.chips):
        assert found == pytest.approx((want.item(), size.item()), rel=1e-5)


def test_the_end_of_a_document_is_known_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "ab"}\n{"text": "cde"}\n' * 9)
    (tmp_path / "a.txt").write_text("abcde" * 9)
    texts.prepare(tmp_path / "a.jsonl", tmp_path / "a")
    texts.prepare(tmp_path / "a.txt", tmp_path / "b")
    assert data.end_of(str(tmp_path / "a")) == 0
    row = data.File(tmp_path / "a", 256, 10, 1, evaluation=True).sample(0)
    assert data.begins(row[None, :-1], 0) == ((0, 3, 7),)
    with refusal("does not say which token ends a document"):
        data.end_of(str(tmp_path / "b"))
    s = Settings(
        documents=True,
        data=str(tmp_path / "a"),
        eval_data=str(tmp_path / "b"),
    )
    with refusal("b does not say which token ends a document"):
        feed.end_token(s)
    header = json.loads((tmp_path / "b.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps(header | {"end_id": 1}))
    with refusal("b' ends documents by another token than data"):
        feed.end_token(s)
    assert feed.end_token(replace(s, eval_data=s.data)) == 0


def test_a_run_says_what_it_waits_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """0.5 s are put into each batch of data, 0.6 s into each checkpoint: tokens/s see them, columns
    name what of them is not hidden behind the steps, and `compare` says so.
    """
    monkeypatch.chdir(tmp_path)
    sample = data.File.samples

    def slow(self: data.File, first: int, count: int) -> data.Tokens:
        time.sleep(0.5)
        return sample(self, first, count)

    written = Writer.write_data

    def full(self: Writer, *args: Any) -> Any:
        time.sleep(0.6)
        return written(self, *args)

    monkeypatch.setattr(data.File, "samples", slow)
    monkeypatch.setattr(Writer, "write_data", full)
    settings = {
        "data": "corpus",
        "steps": 6,
        "lr": 1e-3,
        "eval_every": 3,
        "save_every": 2,
        "async_save": False,
        "record": "none",
    }
    assert cli.run(["train", diverging(**settings)]) == 0
    steps = rows()
    assert [row["step"] for row in steps if "eval_loss" in row] == [3, 6]
    assert all(
        row["step_time_s"] + row["data_s"] <= row["elapsed_s"] for row in steps
    )
    assert (
        sum(row["elapsed_s"] for row in steps) > 6 * 0.5
        and steps[0]["data_s"] > 0.4
    )
    assert (
        steps[2]["eval_s"] > 0 == steps[1]["eval_s"]
        and steps[2]["checkpoint_s"] > 0.6
        and steps[1]["checkpoint_s"] == 0
    )
    stalls = steps[2]["checkpoint_s"] + steps[2]["eval_s"]
    assert steps[2]["elapsed_s"] >= steps[2]["step_time_s"] + stalls
    last = capfd.readouterr().err.splitlines()[-1]
    whole = show(sum(row["elapsed_s"] for row in steps), "s")
    assert f"norm {steps[-1]['gradient_norm']:.3g}  lr 0.0001  " in last
    assert last.startswith("step 6/6") and last.endswith(f"{whole} in all")
    why = [*compare(read_run(Path("run"))).why()]
    for stall in ("waits for its data", "waits for its checkpoints"):
        assert sum(f"of the time the run {stall}" in line for line in why) == 1
    tokens = 4 * 32
    for row in steps:
        assert row["tokens_per_s"] == pytest.approx(tokens / row["elapsed_s"])
