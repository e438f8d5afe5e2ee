"""Kill a training run again and again, and check after every kill what a run promises about its
checkpoints and losses.

    python tests/train/kills.py --kills 50 --seed 1 -o benchmarks/kills.md

A launcher trains with many restarts allowed. Each kill is SIGKILL to a random rank at a random
moment: anywhere after the ranks exist (start-up and loading included), or, for a share of the
kills, within a moment in which a checkpoint is being written. Now and then the launcher itself is
killed, and the run is started again by hand. Checked after every kill: all checkpoints hold the
bytes of their hashes; the run goes on from a checkpoint at least as new as the newest that was
complete before the kill; every row of metrics ever seen stays bit by bit the same, and none is
missing or there twice. At the end: the curve is that of an undisturbed run, bit by bit.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.append(str(Path(__file__).parents[1]))  # as pytest has it
from jobs import LLAMA, job
from small_runs import described

from layouts import cut
from meshwright.errors import BadInput
from meshwright.train.checkpoint import OLD, PART, complete
from meshwright.train.run import metrics
from meshwright.train.storage import read_index, verify

AGAIN = re.compile(r"again from (?:step-(\d+)|the first step)")
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Scene:
    """What is run and how it is disturbed."""

    layout: str
    """In words (`cut`)."""
    kills: int
    seed: int = 1
    save_every: int = 2
    in_writes: float = 0.5
    """Share of the kills that wait for a checkpoint to be under way."""
    in_starts: float = 0.15
    """Share of the kills that fall while ranks start and load; the rest fall while they train."""
    launchers: int = 0
    """Kills of the launcher, besides."""
    window_s: float = 1.5
    """Those that fall in a start or while ranks train come within this time."""

    @property
    def ranks(self) -> int:
        """Of the layout."""
        return int(cut(self.layout).chips)


@dataclass(frozen=True)
class Kill:
    """One kill and what was found after it."""

    victim: str
    moment: str
    """What was aimed at: start, steps or write."""
    last: int
    """Steps done before it, as far as metrics.jsonl says."""
    writing: bool
    """A checkpoint was being written when the signal was sent."""
    torn: bool
    """And was left half written."""
    resumed: int
    """Step the run went on from."""


@dataclass
class Run:
    """A run under fire."""

    scene: Scene
    folder: Path
    seen: dict[int, tuple[float, float]] = field(default_factory=dict)
    """step -> (loss, norm of the gradient) of every row of metrics ever read."""
    process: subprocess.Popen[str] | None = None
    restarts: int = 0
    began: int = 0
    """Step these ranks go on from."""
    old: int = 0
    """The metrics file (its inode) of the ranks before these."""

    @property
    def output(self) -> Path:
        """The run's folder."""
        return self.folder / "run"

    def start(self) -> None:
        """The launcher, from the newest checkpoint if there is one."""
        file = described(
            job(LLAMA, cut(self.scene.layout)),
            str(self.folder / "job.toml"),
            steps=100_000,
            data="synthetic",
            save_every=self.scene.save_every,
            restarts=100_000,
            output=str(self.output),
        )
        words = [
            "train",
            file,
            *["--resume"] * bool(complete(self.output)),
        ]
        (self.folder / "told.txt").write_text("")
        self.restarts = 0
        with (self.folder / "told.txt").open("a") as told:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "meshwright", *words],
                stderr=told,
                stdout=told,
                text=True,
            )

    def told(self) -> str:
        """What the launcher has said."""
        return (self.folder / "told.txt").read_text("utf-8")

    def ranks(self) -> list[int]:
        """The processes of the ranks, in order; none if not all are there."""
        assert self.process is not None
        pid = self.process.pid
        try:
            children = (
                Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            )
        except OSError:
            return []
        return (
            [int(child) for child in children]
            if len(children) == self.scene.ranks
            else []
        )

    def parts(self) -> list[Path]:
        """Checkpoints that are being written, or were."""
        return list(self.output.glob(f"step-*{PART}"))

    def newest(self) -> int:
        """Steps of the newest complete checkpoint."""
        found = complete(self.output)
        return int(found[-1].name.removeprefix("step-")) if found else 0

    def until(
        self, true: Callable[[], object], what: str, every_s: float = 0.02
    ) -> None:
        """Wait for something the run does."""
        assert self.process is not None
        end = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end and self.process.poll() is None, (
                f"waiting for {what}: {self.told()[-2000:]}"
            )
            time.sleep(every_s)

    def look(self) -> int:
        """Read the metrics; they begin at step 1, miss and repeat nothing, and say what they said
        before. The last step.
        """
        rows = metrics(self.output / "metrics.jsonl")
        assert [row["step"] for row in rows] == list(
            range(1, len(rows) + 1)
        ), "steps are missing or there twice"
        for row in rows:
            value = row["loss"], row["gradient_norm"]
            assert self.seen.setdefault(row["step"], value) == value, (
                f"step {row['step']} came out differently"
            )
        return len(rows)

    def file(self) -> int:
        """Which file metrics.jsonl is: ranks that start make it anew. 0: none."""
        path = self.output / "metrics.jsonl"
        return path.stat().st_ino if path.exists() else 0

    def trains(self) -> bool:
        """These ranks have done a step (so what others left half written is gone)."""
        return self.file() != self.old and self.look() > self.began

    def sound(self) -> None:
        """Every checkpoint that has its name is complete and as it was written."""
        for path in complete(self.output):
            try:
                verify(path, read_index(path))
            except BadInput:
                # it was pruned while we read
                assert not path.exists(), f"{path} is corrupt"

    def stop(self) -> int:
        """SIGTERM: the run saves and ends; the steps it has done."""
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, self.told()[-2000:]
        done = self.look()
        assert self.newest() == done, "the last step is saved"
        assert (
            len(complete(self.output)) <= 2
            and not self.parts()
            and not list(self.output.glob(f"step-*{OLD}"))
        )
        self.sound()
        return done


def kill(run: Run, chance: random.Random, launcher: bool) -> Kill:
    """One kill, and the checks after it."""
    assert run.process is not None
    run.until(run.ranks, "ranks")
    shares = (
        run.scene.in_writes,
        run.scene.in_starts,
        1 - run.scene.in_writes - run.scene.in_starts,
    )
    moment = chance.choices(("write", "start", "steps"), shares)[0]
    if moment != "start":
        run.until(run.trains, "a step")
    if moment == "write":
        goal = run.began + chance.randint(1, 3 * run.scene.save_every)
        run.until(lambda: run.look() >= goal, "some steps")
        run.until(run.parts, "a checkpoint", 0.001)
    time.sleep(
        chance.uniform(0, 0.02 if moment == "write" else run.scene.window_s)
    )
    rank = chance.randrange(run.scene.ranks)
    victim = run.process.pid if launcher else run.ranks()[rank]
    newest, begun = run.newest(), run.trains()
    run.old, writing = run.file(), begun and bool(run.parts())
    os.kill(victim, signal.SIGKILL)
    if launcher:
        ranks = run.ranks()
        run.process.wait(PATIENCE_S)
        while any(Path(f"/proc/{pid}").exists() for pid in ranks):
            time.sleep(0.01)
        torn, run.began, last = (
            begun and bool(run.parts()),
            run.newest(),
            run.look(),
        )
        run.sound()
        run.start()
    else:
        left = set[Path]()

        def again() -> bool:
            left.update(run.parts())  # the launcher clears them away
            return len(AGAIN.findall(run.told())) > run.restarts

        run.until(again, "a restart", 0.002)
        torn = begun and any(not p.with_suffix("").exists() for p in left)
        last = run.look()
        run.sound()
        assert "Full Schedule" not in run.told(), "a page of PyTorch's"
        run.restarts += 1
        run.began = int(AGAIN.findall(run.told())[-1] or 0)
    assert run.began >= newest, (
        f"resumed from {run.began} though {newest} was complete"
    )
    return Kill(
        "launcher" if launcher else f"rank {rank}",
        moment,
        last,
        writing,
        torn,
        run.began,
    )


@contextmanager
def running(scene: Scene, folder: Path) -> Iterator[Run]:
    """A run that does not outlive its scene."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(scene, folder)
    run.start()
    try:
        yield run
    finally:
        if run.process is not None:
            run.process.kill()
            run.process.wait()


def play(
    scene: Scene, folder: Path, say: Callable[[str], None] = lambda line: None
) -> list[Kill]:
    """All kills of a scene, and the comparison with an undisturbed run; AssertionError if anything
    was lost or came out differently.
    """
    chance = random.Random(scene.seed)
    order = [False] * scene.kills + [True] * scene.launchers
    chance.shuffle(order)
    kills = []
    with running(scene, folder / "disturbed") as run:
        for number, launcher in enumerate(order, 1):
            kills.append(kill(run, chance, launcher))
            say(f"{number} {kills[-1]}")
        goal = run.newest() + 2 * scene.save_every + 1
        run.until(lambda: run.look() >= goal, "the last steps")
        done = run.stop()
    with running(scene, folder / "undisturbed") as whole:
        whole.until(lambda: whole.look() >= done, "the undisturbed run")
        whole.stop()
    assert {step: whole.seen[step] for step in run.seen} == run.seen, (
        "the curve is not that of the undisturbed run"
    )
    return kills


def report(scene: Scene, kills: list[Kill], seconds: float) -> str:
    """A line of the table in benchmarks/kills.md."""
    redone = [k.last - k.resumed for k in kills]
    return (
        f"| {scene.layout} | {scene.seed} | {len(kills)} ({scene.launchers}) |"
        f" {sum(k.writing for k in kills)} | {sum(k.torn for k in kills)} |"
        f" {sum(k.moment == 'start' for k in kills)} | {kills[-1].last} | {sum(redone)} |"
        f" {max(redone)} | {seconds:.0f} s |"
    )


HEAD = """# Kills

`python tests/train/kills.py` kills ranks of a run (4 layers, {save} steps between checkpoints that are written in the background) with SIGKILL at random
moments, and checks after each kill that no checkpoint is corrupt, that the run went on from the newest complete one, and that no row of
metrics is missing, doubled or different; at the end, that losses and gradient norms are those of an undisturbed run, bit by bit. A line is here
only if all of that held. "Writing": a checkpoint was being written when the signal was sent; "torn": it was left half written.

| layout | seed | kills (of the launcher) | writing | torn | in a start | steps at the last kill | steps done again | most at once | time |
|---|---|---|---|---|---|---|---|---|---|
"""
LAYOUTS = {
    "tp2dp2": "tp2 dp2 zero1 microbatch4",
    "pp2dp2": "pp2 dp2 zero1 microbatch1 interleaved interleave2",
    "tp2pp2dp2": "tp2 pp2 dp2 microbatch1",
}


def main() -> None:
    """The script."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--launchers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layouts", default="tp2dp2", help=", ".join(LAYOUTS))
    parser.add_argument("-o", "--output", help="where the table goes")
    given = parser.parse_args()
    text = HEAD.format(save=Scene.save_every)
    for name in given.layouts.split(","):
        scene = Scene(
            LAYOUTS[name], given.kills, given.seed, launchers=given.launchers
        )
        began = time.monotonic()
        with TemporaryDirectory(prefix="kills-") as folder:
            kills = play(
                scene,
                Path(folder),
                lambda line: print(line, file=sys.stderr, flush=True),
            )
        text += report(scene, kills, time.monotonic() - began) + "\n"
    Path(given.output).write_text(text, "utf-8") if given.output else print(
        text
    )


if __name__ == "__main__":
    main()
