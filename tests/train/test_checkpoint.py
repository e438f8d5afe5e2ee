"""Checkpoints: another layout goes on where the first stopped; what is cut, changed or pickled is
refused; only whole ones count.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import resource
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")
import torch.distributed as dist  # noqa: E402
from jobs import (  # noqa: E402
    DEEPSEEK,
    GPT,
    LLAMA,
    SETTINGS,
    each_rank,
    job,
    reference,
    share,
    tokens,
)
from safetensors.torch import save_file  # noqa: E402

from layouts import cut  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.describe.model import Model  # noqa: E402
from meshwright.train import checkpoint  # noqa: E402
from meshwright.train.export import sound  # noqa: E402
from meshwright.train.generate import generate  # noqa: E402
from meshwright.train.launch import RankFailed, fork_ranks  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.storage import (  # noqa: E402
    Beating,
    Reader,
    Writer,
    sealed,
)
from refusals import refusal  # noqa: E402

SHORT = replace(SETTINGS, steps=12)
FILE, INDEX = "0.safetensors", "index.json"
"""Data of the first rank, and what says where everything is."""
PICKLED = pickle.dumps({"format": "meshwright-checkpoint-3"})


def part(
    model: Model, layout: Layout, folder: Path, steps: range
) -> list[float]:
    """Losses of some steps of a run, resumed from the newest checkpoint of the folder if they are
    not the first, saved after the last.
    """

    def work(device: torch.device) -> list[float]:
        trainer = Trainer(job(model, layout), SHORT, device)
        if steps.start:
            assert (
                checkpoint.load(trainer, checkpoint.complete(folder)[-1])
                == steps.start
            )
        losses = []
        for step in steps:
            losses.append(
                trainer.step(step, *share(trainer, tokens(step))).loss
            )
        checkpoint.save(trainer, folder, steps.stop, keep=2)
        return losses

    return list(each_rank(work, layout.chips)[0])


EIGHT = (
    cut("tp2 pp2 dp2 zero1 microbatch2 interleave2 interleaved"),
    cut("tp4 dp2 zero3 microbatch2"),
    cut("pp4 dp2 microbatch1"),
    cut("microbatch8"),
)
"""The chain of the acceptance: 8 ranks three times, then one."""


@pytest.mark.parametrize(
    ("model", "layouts"),
    [
        (
            GPT,
            (
                cut("tp2 pp2 microbatch2 interleave2 interleaved"),
                cut("pp4 microbatch2"),
                cut("pp2 microbatch2 zbv"),
                cut("microbatch8"),
            ),
        ),
        (
            LLAMA,
            (
                cut("dp2 zero3 microbatch4"),
                cut("tp2 dp2 zero1 microbatch4"),
                cut("pp2 microbatch2 zbv"),
            ),
        ),
        (
            DEEPSEEK,
            (
                cut("dp4 ep2 zero1 microbatch2"),
                cut("dp2 ep1 zero3 microbatch4"),
                cut("pp2 dp2 ep2 microbatch2"),
            ),
        ),
        pytest.param(
            replace(LLAMA, kv_heads=4), EIGHT, marks=pytest.mark.slow
        ),
        pytest.param(GPT, EIGHT, marks=pytest.mark.slow),
    ],
    ids=[
        "gpt: tp2 pp2 interleaved, pp4, zbv (both copies of the tied matrix on a rank), one process",
        "llama: zero3, tp2 zero1, zbv",
        "experts: dp4 ep2, zero3, pp2 ep2",
        "llama: 8 ranks",
        "gpt: 8 ranks",
    ],
)
def test_other_layouts_go_on(
    model: Model, layouts: tuple[Layout, ...], tmp_path: Path
) -> None:
    losses: list[float] = []
    for k, layout in enumerate(layouts):
        losses += part(model, layout, tmp_path, range(3 * k, 3 * k + 3))
    assert losses == pytest.approx(
        reference(model, SHORT)["losses"][: len(losses)], abs=1e-5
    )
    newest = 3 * len(layouts)
    assert [path.name for path in checkpoint.complete(tmp_path)] == [
        f"step-{newest - 3:08d}",
        f"step-{newest:08d}",
    ]


def test_the_same_layout_goes_on_bit_by_bit(tmp_path: Path) -> None:
    layout = cut("pp2 dp2 zero1 microbatch2")
    whole = (
        part(LLAMA, layout, tmp_path / "whole", range(6))
        if (tmp_path / "whole").mkdir() is None
        else []
    )
    (tmp_path / "parts").mkdir()
    assert (
        part(LLAMA, layout, tmp_path / "parts", range(3))
        + part(LLAMA, layout, tmp_path / "parts", range(3, 6))
        == whole
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that the tests below damage copies of."""
    folder = tmp_path_factory.mktemp("saved")
    part(LLAMA, cut("microbatch8"), folder, range(1))
    return checkpoint.complete(folder)[-1]


Damage = Callable[[Path], None]


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Damage:
    """A file of a checkpoint with other bytes."""

    def damage(path: Path) -> None:
        (path / name).write_bytes(change((path / name).read_bytes()))

    return damage


def another_bit(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


flip = rewritten(FILE, another_bit)


def torch_checkpoint(path: Path) -> None:
    (path / INDEX).unlink()
    (path / ".metadata").write_bytes(pickle.dumps("anything"))


HEAD = "weights/head.weight"


def linked(path: Path) -> None:
    (path / FILE).rename(path.parent / "elsewhere")
    (path / FILE).symlink_to(path.parent / "elsewhere")


def endless(path: Path) -> None:
    (path / FILE).unlink()
    os.mkfifo(path / FILE)


def endless_index(path: Path) -> None:
    (path / INDEX).unlink()
    (path / INDEX).symlink_to("/dev/zero")


def gone(path: Path) -> None:
    (path / FILE).unlink()


def file(**change: Any) -> Damage:
    """Change what is said of the file."""
    return lambda path: edit(
        path, lambda index: index["files"][FILE].update(change)
    )


def outside_file(path: Path) -> None:
    """A file of the index that is not one of the checkpoint."""

    def change(index: Any) -> None:
        index["files"]["../secret"] = index["files"].pop(FILE)

    (path / FILE).rename(path.parent / "secret")
    edit(path, change)


def added_file(path: Path) -> None:
    """PyTorch's reader takes every file of the folder."""
    shutil.copy(path / FILE, path / "other.safetensors")


Contents = dict[str, Any]


def header(change: Callable[[Contents, Contents], None]) -> Any:
    """Change the tensors, or their offsets, of the file, and seal it again."""

    def damage(path: Path) -> None:
        with safetensors.safe_open(path / FILE, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            words = file.metadata()
        offsets = json.loads(words["DCP_SHARDING_INFO"])
        change(tensors, offsets)
        words["DCP_SHARDING_INFO"] = json.dumps(offsets)
        save_file(tensors, path / FILE, words)
        seal_again(path)

    return damage


def seal_again(path: Path) -> None:
    data = (path / FILE).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    edit(
        path,
        lambda index: index["files"][FILE].update(
            bytes=len(data), sha256=digest
        ),
    )


def broken_header(path: Path) -> None:
    data = bytearray((path / FILE).read_bytes())
    data[8:10] = b"[["
    (path / FILE).write_bytes(data)
    seal_again(path)


def at(*offset: int) -> Any:
    """Say that the head lies elsewhere."""
    return header(
        lambda tensors, offsets: offsets[HEAD].update(saved_offsets=offset)
    )


def without(part: str, tensors: Contents, offsets: Contents) -> None:
    """The head is not there, or half of it, or where it lies."""
    if part == "rows":
        tensors[HEAD] = tensors[HEAD][128:].clone()
        offsets[HEAD]["saved_offsets"] = [128, 0]
    else:
        {"tensor": tensors, "offset": offsets}[part].pop(HEAD)


lost_tensor, lost_rows, no_offset = (
    header(partial(without, part)) for part in ("tensor", "rows", "offset")
)


def other_model(path: Path) -> None:
    edit(path, lambda index: index["model"].update(layers=5))


def edit(path: Path, change: Callable[[Any], None]) -> None:
    index = json.loads((path / INDEX).read_text())
    change(index)
    (path / INDEX).write_text(json.dumps(sealed(index)))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (other_model, "another model"),
        (lost_tensor, "does not hold this model"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(
    saved: Path, tmp_path: Path, damage: Damage, says: str
) -> None:
    path = tmp_path / saved.name
    shutil.copytree(saved, path)
    damage(path)
    with pytest.raises(RankFailed, match=says):
        part(LLAMA, cut("microbatch8"), tmp_path, range(1, 2))


def held(folder: Path, background: bool, device: torch.device) -> list[float]:
    """Losses of three steps, saved after the first and the last; in the background, the first save
    is held until two more steps are done.
    """
    trainer = Trainer(job(LLAMA, cut("dp2 zero1 microbatch4")), SHORT, device)
    saver = checkpoint.Saver(trainer, folder, 2, background)
    gate, write = threading.Event(), Writer.write_data
    with pytest.MonkeyPatch.context() as patch:
        if background:
            patch.setattr(
                Writer,
                "write_data",
                lambda *given: gate.wait(60) and write(*given),
            )
        losses = [trainer.step(0, *share(trainer, tokens(0))).loss]
        path = saver.save(1)
        losses += [
            trainer.step(step, *share(trainer, tokens(step))).loss
            for step in (1, 2)
        ]
        dist.barrier()
        # still being written, after two steps
        assert path.exists() is not background
        gate.set()
        saver.save(3)
        assert path.exists()  # one at a time
        saver.wait()
    return losses


def test_steps_go_on_while_a_copy_is_written(tmp_path: Path) -> None:
    """Bytes written two steps later are those of a save that the steps waited for, and the losses
    do not notice.
    """

    def work(device: torch.device) -> None:
        assert held(tmp_path / "False", False, device) == held(
            tmp_path / "True", True, device
        )

    fork_ranks(work, 2, timeout_s=120)
    for name in ("step-00000001", "step-00000003"):
        waited, beside = (
            checkpoint.read_index(tmp_path / mode / name)["files"]
            for mode in ("False", "True")
        )
        assert waited == beside and len(waited) == 2
    assert (
        waited
        != checkpoint.read_index(tmp_path / "True" / "step-00000001")["files"]
    )


@pytest.mark.parametrize("background", [False, True])
def test_a_full_disk_is_a_sentence_and_harms_no_older_checkpoint(
    background: bool, tmp_path: Path
) -> None:
    """Rank 1 may write no more than a few bytes a file when the second checkpoint comes."""

    def work(device: torch.device) -> None:
        trainer = Trainer(job(LLAMA, cut("dp2 microbatch4")), SHORT, device)
        saver = checkpoint.Saver(trainer, tmp_path, 1, background)
        trainer.step(0, *share(trainer, tokens(0)))
        saver.save(1)
        saver.wait()
        if dist.get_rank() == 1:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        saver.save(2)
        while True:
            saver.check()
            dist.barrier()

    says = (
        "step-00000002 could not be written by rank 1: File too large; the newest complete checkpoint is"
        " step-00000001"
    )
    with pytest.raises(RankFailed, match=says):
        fork_ranks(work, 2, timeout_s=60)
    (left,) = checkpoint.complete(tmp_path)
    checkpoint.verify(left, checkpoint.read_index(left))


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    def work(device: torch.device) -> None:
        trainer = Trainer(job(LLAMA, cut("microbatch8")), SHORT, device)
        (tmp_path / "file").write_text("in the way")
        checkpoint.save(trainer, tmp_path / "file", 1, keep=1)

    with pytest.raises(
        RankFailed,
        match="could not be written by rank 0: Not a directory; no checkpoint is complete",
    ):
        fork_ranks(work, 1, timeout_s=60)


def test_what_killed_runs_left_is_cleaned_and_names_are_given_last(
    tmp_path: Path,
) -> None:
    """A checkpoint in the way of another, or too old, loses its name before its first file."""
    for name in (
        "step-00000001.part",
        "step-00000002.part",
        "step-00000002.old",
        "step-00000003",
        "step-00000004",
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.safetensors").write_text(name)
    checkpoint.clean(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000003",
        "step-00000004",
    ]
    (tmp_path / "step-00000004.part").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        # killed before anything is deleted
        patch.setattr(checkpoint.shutil, "rmtree", lambda *path, **how: None)
        checkpoint.publish(tmp_path / "step-00000004.part", keep=1)
    assert [path.name for path in checkpoint.complete(tmp_path)] == [
        "step-00000004"
    ]
    assert not list((tmp_path / "step-00000004").iterdir())
    assert sorted(p.name for p in tmp_path.glob("*.old")) == [
        "step-00000003.old",
        "step-00000004.old",
    ]


def test_a_damaged_checkpoint_counts_for_none_of_those_that_stay(
    tmp_path: Path,
) -> None:
    """The run went on from step 8, for step 12 is damaged: step 10 is its newest, and stays."""
    for name in ("step-00000008", "step-00000012", "step-00000010.part"):
        (tmp_path / name).mkdir()
    checkpoint.publish(tmp_path / "step-00000010.part", keep=1)
    names = [path.name for path in checkpoint.complete(tmp_path)]
    assert names == ["step-00000010", "step-00000012"]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        *(
            (rewritten(FILE, how), f"{FILE} has .* bytes instead of")
            for how in (lambda data: data[:-1], lambda _: PICKLED)
        ),
        (flip, f"the contents of {FILE} were changed"),
        *((how, f"{FILE} is missing") for how in (gone, linked, endless)),
        (added_file, "other.safetensors is not one of its files"),
        (lost_rows, "weights/head.weight is not whole"),
        (
            rewritten(INDEX, lambda _: PICKLED),
            "pickled checkpoints are not read",
        ),
        (torch_checkpoint, "no index.json"),
        *(
            (how, ".")
            for how in (
                endless_index,
                *(
                    rewritten(INDEX, how)
                    for how in (
                        lambda data: data.replace(b'"step": 1', b'"step": 2'),
                        lambda data: data[: len(data) // 2],
                        lambda _: b"[" * 100_000,
                        lambda _: b"[]",
                    )
                ),
                outside_file,
                no_offset,
                broken_header,
                *starmap(at, ((1, 0), (-1, 0), (0,), (0, 10**9))),
                *(
                    file(bytes=size)
                    for size in (0, 10**9, 1e6, -1, "1", None, True)
                ),
                *(file(sha256=digest) for digest in ("", None, 0)),
                *(
                    partial(edit, change=change)
                    for change in (
                        lambda index: index.update(step=1.0),
                        lambda index: index.update(step=-1),
                        lambda index: index.update(format="another"),
                        lambda index: index.pop("files"),
                    )
                ),
            )
        ),
    ],
)
def test_damage_is_found_out(
    saved: Path, tmp_path: Path, damage: Damage, says: str
) -> None:
    """Whatever is wrong is a sentence, before a tensor is made or a file outside the checkpoint is
    opened.
    """
    path = tmp_path / saved.name
    shutil.copytree(saved, path)
    checkpoint.sound_index(path)
    Reader(path)
    damage(path)
    with refusal(says):
        checkpoint.sound_index(path)
        Reader(path)


def of_three(saved: Path, folder: Path) -> None:
    """Three checkpoints: the newest has another bit, the next lacks its file."""
    for step, damage in ((1, None), (2, gone), (3, flip)):
        path = folder / f"step-{step:08d}"
        shutil.copytree(saved, path)
        if damage:
            damage(path)


def test_a_damaged_checkpoint_gives_way_to_a_sound_one_before_it(
    saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The sentence names what is wrong and what is taken."""
    of_three(saved, tmp_path)

    def work(device: torch.device) -> None:
        trainer = Trainer(
            job(LLAMA, cut("dp2 microbatch4")), SHORT, device, fresh=False
        )
        assert checkpoint.resume(trainer, tmp_path / "step-00000003") == 1

    fork_ranks(work, 2, timeout_s=60)
    told = capfd.readouterr().err
    assert (
        f"step-00000003 is damaged: the contents of {FILE} were changed"
        in told
    )
    assert "going on from step-00000001 instead" in told
    flip(tmp_path / "step-00000001")
    with pytest.raises(
        RankFailed,
        match=f"{FILE} were changed; no checkpoint before it is",
    ):
        fork_ranks(work, 2, timeout_s=60)


def test_generate_and_export_name_the_sound_one_before_a_damaged_one(
    saved: Path, tmp_path: Path
) -> None:
    """Neither takes older weights than were meant; both say where sound ones are."""
    of_three(saved, tmp_path)
    older = tmp_path / "step-00000001"
    says = f"step-00000003 is damaged: .* were changed; {older} is sound"
    with refusal(says):
        sound(tmp_path)
    with refusal(says):
        generate(tmp_path, "a", 1, tokenizer="bytes")
    assert sound(older)[0] == older
    flip(older)
    with refusal("were changed; no checkpoint before it is sound"):
        sound(tmp_path)
    with refusal("step-00000001 is damaged: .* were changed$"):
        sound(older)


def test_each_byte_is_compared_once_and_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks' shards, read by four that share the state out: the rows that each holds, no more."""
    part(LLAMA, cut("dp2 zero1 microbatch4"), tmp_path, range(1))
    path = checkpoint.complete(tmp_path)[-1]
    size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    target = Beating.resolve_tensor
    read: list[int] = []

    def counted(self: Beating, item: Any) -> Any:
        tensor = target(self, item)
        read.append(tensor.nbytes)
        return tensor

    def compared(folder: Path, index: Any, share: int, shares: int) -> None:
        names = sorted(index["files"])[share::shares]
        (tmp_path / f"{share}.compared").write_text(" ".join(names))

    def work(device: torch.device) -> int:
        wanted = job(LLAMA, cut("dp4 zero3 microbatch2"))
        # nothing is drawn
        monkeypatch.setattr("meshwright.train.loop.initialise", None)
        monkeypatch.setattr(Beating, "resolve_tensor", counted)
        monkeypatch.setattr(checkpoint, "verify", compared)
        checkpoint.load(Trainer(wanted, SHORT, device, fresh=False), path)
        return sum(read)

    each = each_rank(work, 4)
    assert sum(each) <= size and max(each) <= 1.1 * size / 4
    names = " ".join(
        (tmp_path / f"{rank}.compared").read_text() for rank in range(4)
    )
    assert sorted(names.split()) == [FILE, "1.safetensors"]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_others_read_it(tmp_path: Path) -> None:
    """PyTorch's own reader of safetensors, and the package itself, find what was saved."""
    from torch.distributed.checkpoint import HuggingFaceStorageReader, load

    part(LLAMA, cut("tp2 dp2 zero1 microbatch4"), tmp_path, range(1))
    path = checkpoint.complete(tmp_path)[-1]
    reader = Reader(path)
    name = "weights/layers.1.ffn.down.weight"
    shape = reader.shapes[name]
    want = reader.whole(name)
    found = {name: torch.zeros(shape)}
    load(
        found, storage_reader=HuggingFaceStorageReader(str(path)), no_dist=True
    )
    assert torch.equal(found[name], want) and want.abs().sum() > 0
    files = sorted(path.glob("*.safetensors"))
    assert len(files) == 4
    for each in files:
        with safetensors.safe_open(each, framework="pt") as file:
            offsets = json.loads(file.metadata()["DCP_SHARDING_INFO"])
            piece = file.get_tensor(name)
        sides = zip(offsets[name]["saved_offsets"], piece.shape, strict=True)
        region = tuple(slice(a, a + n) for a, n in sides)
        assert piece.numel() < want.numel()
        assert torch.equal(piece, want[region])


def test_the_state_of_a_gpu_is_copied_into_pinned_memory_that_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One stager for all saves of a run, that waits until its copies are there; on CPUs PyTorch's
    own. (What it does on a GPU only a GPU shows.)
    """
    made: list[Any] = []

    def stager(options: Any) -> Any:
        made.append(options)
        return object()

    monkeypatch.setattr(checkpoint, "DefaultStager", stager)
    assert checkpoint.stager(torch.device("cpu")) is None
    assert checkpoint.stager(torch.device("cuda")) is not None
    (how,) = made
    assert how.use_pinned_memory and how.use_non_blocking_copy
    assert not (how.use_async_staging or how.use_shared_memory)
