"""Another engine carries a plan out: torchtitan, or Megatron-LM from its checkout.

The plan becomes the engine's own configuration (`formats.bridge`), torchrun starts it, its lines
are watched and kept, and when it ends they stand beside the prediction and scale it. A run is a
folder, as that of our trainer: job.toml, engine.sh (the configuration), train.log, checkpoint/ with
its seals, ours.toml (the job's machine, scaled by the run's steps), run.lock.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..compare.installation import LEAST, MeasuredStep, installation
from ..compare.logged import Logged, compare_log
from ..describe.cluster import Installation
from ..describe.job import Job
from ..describe.training import Settings
from ..errors import BadInput, MeshwrightError, unknown
from ..formats.export import export
from ..formats.logs import COLOUR, read_log, steps_of
from ..formats.machine import dump_machine
from ..formats.toml import dump_job
from ..prediction.prediction import predict
from . import guard
from .guard import Lock
from .watchdog import state

LOG, SCRIPT, JOB, SCALED = "train.log", "engine.sh", "job.toml", "ours.toml"
"""Files of a run's folder."""
CHECKPOINTS = "checkpoint"
LOOK_S = 1.0
"""Between two looks at an engine that says nothing."""
GRACE_S = 30.0
"""How long an engine may take to end after SIGTERM."""
ERROR = re.compile(r"^(?:\[?rank\d+\]?:? *)?([\w.]*(?:Error|Exception)\b.*)")
"""A line of a traceback that says what went wrong."""
TORCHRUN = "ChildFailedError"
"""torchrun's own word for any of them."""
MOST = 200
"""Characters of such a line that are repeated."""


class OtherEngineFailed(MeshwrightError):
    """Another engine ended before its work was done."""

    exit_code = 3


class Engine(NamedTuple):
    """A program that trains, and how [train] is said in its flags."""

    program: str
    """In the script of its format, behind torchrun's own words."""
    flags: Mapping[str, str]
    """Field of [train] -> its flags, with {} for the value."""
    folder: str
    """Flags for the folder of the run, {}."""
    always: str = ""
    """Flags of every run."""
    on_cpu: str = ""
    """What stands for the program on CPUs, and its flags; empty: it needs GPUs."""


GROUP = "--optimizer.param_groups.0.optimizer_kwargs."
ON_CPU = Path(__file__).with_name("torchtitan_on_cpu.py")
ENGINES = {
    "torchtitan": Engine(
        program="-m torchtitan.train",
        flags={
            "steps": "--training.steps {}",
            "lr": GROUP + "lr {}",
            "epsilon": GROUP + "eps {}",
            "weight_decay": GROUP + "weight_decay {}",
            "clip": "--training.max_norm {}",
            "warmup": "--lr_scheduler.warmup_steps {}",
            "final_lr": "--lr_scheduler.min_lr_factor {}",
            "seed": "--debug.seed {}",
            "save_every": "--checkpoint.enable --checkpoint.interval {}",
            "keep": "--checkpoint.keep_latest_k {}",
            "eval_every": "--validator.enable --validator.freq {}",
            "timeout": "--comm.train_timeout_seconds {:.0f}",
        },
        folder="--dump_folder {} --comm.save_traces_folder flight",
        always="--metrics.log_freq 1 --metrics.disable_color_printing",
        on_cpu=f"{shlex.quote(str(ON_CPU))}"
        " --parallelism.spmd_backend partial_dtensor",
    ),
    "megatron": Engine(
        program="pretrain_gpt.py",
        flags={
            "steps": "--train-iters {}",
            "lr": "--lr {}",
            "beta1": "--adam-beta1 {}",
            "beta2": "--adam-beta2 {}",
            "epsilon": "--adam-eps {}",
            "weight_decay": "--weight-decay {}",
            "clip": "--clip-grad {}",
            "warmup": "--lr-warmup-iters {}",
            "seed": "--seed {}",
            "save_every": "--save-interval {}",
            "eval_every": "--eval-interval {}",
        },
        folder=f"--save {{0}}/{CHECKPOINTS} --load {{0}}/{CHECKPOINTS}",
        always="--log-interval 1",
    ),
}
"""Sources: torchtitan 0.3.0, `-m torchtitan.train --help`; Megatron-LM d98e8a6, arguments.py."""
ITS_OWN = ("device", "output", "threads", "restarts")
"""Fields of [train] that say how the engine is started."""


class Driven(NamedTuple):
    """A run of another engine, and what it says of the prediction."""

    engine: str
    folder: Path
    comparison: Logged
    scale: Installation | None
    """Of the job's machine; None where too few steps were measured."""
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields of `train --engine --json`."""
        return {
            **self.comparison.to_dict(),
            "engine": self.engine,
            "output": str(self.folder),
            "scale": self.scale and self.scale.scale,
            "notes": list(self.notes),
        }


def _engine(name: str) -> Engine:
    """By its name."""
    if name not in ENGINES:
        raise unknown("--engine", name, ("meshwright", *ENGINES))
    return ENGINES[name]


def drive(
    job: Job,
    settings: Settings,
    name: str,
    resume: bool,
    more: str,
) -> Driven:
    """Run a plan on an engine and compare it with its prediction. BadInput for what that engine
    cannot run, OtherEngineFailed where it fails or hangs.

    more: flags of the engine that stand behind all others, such as its data and tokenizer.
    """
    job, folder = job.filled, Path(settings.output)
    script, flags, notes = command(job, settings, name, more)
    if not shutil.which("torchrun"):
        raise BadInput(
            f"--engine {name} starts torchrun, which is not on the PATH: use"
            f" the environment in which {name} is installed"
        )
    with Lock(folder) as lock:
        log = folder / LOG
        if log.exists() and not resume:
            raise BadInput(
                f"{folder} holds a run already: --resume continues it, -o"
                " starts another"
            )
        notes += guard.set_aside(folder / CHECKPOINTS)
        for note in notes:
            print(note, file=sys.stderr)
        (folder / JOB).write_text(dump_job(job), "utf-8")
        (folder / SCRIPT).write_text(script, "utf-8")
        try:
            _run(["bash", str(folder / SCRIPT), *flags], settings, log, lock)
        finally:
            guard.seal(folder / CHECKPOINTS)
    return compared(job, name, folder, tuple(notes))


def command(
    job: Job, settings: Settings, name: str, more: str
) -> tuple[str, list[str], list[str]]:
    """(script of the plan, flags behind it, what [train] says in vain)."""
    its = _engine(name)
    script = export(job, name)
    if settings.device == "cpu":
        if not its.on_cpu:
            raise BadInput(f"--engine {name} needs GPUs: --device cuda")
        script = script.replace(its.program, its.on_cpu, 1)
    wanted = {k: getattr(settings, k) for k in job.train if k not in ITS_OWN}
    vain = sorted(k for k in wanted if k not in its.flags)
    flags = [
        word
        for field, value in wanted.items()
        if field in its.flags and value is not None
        for word in its.flags[field].format(value).split()
    ]
    where = shlex.quote(str(Path(settings.output).resolve()))
    flags = [
        *shlex.split(its.always),
        *shlex.split(its.folder.format(where)),
        *flags,
        *shlex.split(more),
    ]
    notes = [
        f"{name} is not told train.{', train.'.join(vain)}: its flags for"
        " that go into --engine-flags"
    ]
    return script, flags, notes if vain else []


def _run(words: list[str], settings: Settings, log: Path, lock: Lock) -> None:
    """Run an engine to its end. Its ranks hold the folder as long as they live."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(settings.threads),
        "PET_MAX_RESTARTS": str(settings.restarts or 0),  # of torchrun
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    if settings.device == "cpu":
        # else modules beside the file that is started hide others' names
        environment["PYTHONSAFEPATH"] = "1"
    with (
        log.open("ab") as kept,
        subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            pass_fds=(lock.file,),
        ) as process,
        ended(process),
    ):
        if process.stdout is None:
            raise AssertionError("a pipe was asked for")
        watch(process, process.stdout, kept, settings.timeout)
    if process.returncode:
        raise OtherEngineFailed(
            f"the engine ended with exit code {process.returncode}:"
            f" {last_words(log)}; {log} has all it said"
        )


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A context that no rank outlives, whatever ends it: SIGTERM to us is one to them."""

    def stop(*_: object) -> None:
        raise OtherEngineFailed("ended by SIGTERM, and the engine with it")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if process.poll() is None:
            _send(process, signal.SIGTERM)
            _send(process, signal.SIGCONT)  # a stopped rank would not hear it
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        _send(process, signal.SIGKILL)


def _send(process: subprocess.Popen[bytes], what: int) -> None:
    """A signal to all of a session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, what)


def watch(
    process: subprocess.Popen[bytes],
    said: IO[bytes],
    kept: IO[bytes],
    timeout_s: float,
) -> None:
    """Keep and show what an engine says until it ends; OtherEngineFailed where it says nothing for
    too long. Time is counted in looks, so a machine that slept accuses nobody.
    """
    silent_s = 0.0
    look_s = min(LOOK_S, timeout_s / 10)
    while True:
        if select.select([said], [], [], look_s)[0]:
            piece = os.read(said.fileno(), 1 << 16)
            if not piece:
                break
            silent_s = 0.0
            kept.write(piece)
            kept.flush()
            sys.stderr.write(piece.decode("utf-8", "replace"))
            sys.stderr.flush()
        else:
            silent_s += look_s
        if silent_s >= timeout_s:
            raise OtherEngineFailed(
                f"no word for {timeout_s:g} s: {who(process.pid)};"
                " all were ended"
            )
    process.wait()


def who(session: int) -> str:
    """The ranks of a session, those first that a signal has stopped."""
    ranks: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            if os.getsid(int(path.name)) != session:
                continue
            variables = (path / "environ").read_bytes().split(b"\0")
            # torchrun and the shell have no rank, which is a ValueError here
            rank = next(
                (x[5:] for x in variables if x.startswith(b"RANK=")), b""
            )
            ranks[int(rank)] = state(int(path.name))
    stopped = [rank for rank, letter in ranks.items() if letter in ("T", "t")]
    if stopped:
        return (
            f"rank {', '.join(map(str, sorted(stopped)))}, stopped by a"
            f" signal, of {len(ranks)} ranks"
        )
    return f"{len(ranks)} ranks live and none says a line"


def last_words(log: Path) -> str:
    """The last error in a log; its last line where it names none."""
    lines = [
        COLOUR.sub("", line).strip() for line in read_log(log).splitlines()
    ]
    errors = [
        m[1]
        for line in lines
        if (m := ERROR.match(line)) and TORCHRUN not in line
    ]
    last = next((line for line in reversed(lines) if line), "nothing said")
    return (errors[-1] if errors else last)[:MOST]


def compared(
    job: Job, name: str, folder: Path, notes: tuple[str, ...]
) -> Driven:
    """The log beside the prediction; the machine of the job, scaled by the steps, in the folder."""
    log = folder / LOG
    plain = replace(
        job, cluster=replace(job.cluster, installation=Installation())
    )
    steps = steps_of(read_log(log), str(log))
    comparison = compare_log(str(log), steps, predict(job))
    measured = [
        MeasuredStep(str(log), plain, comparison.seconds(step))
        for step in steps.steady
    ]
    if len(measured) < LEAST:
        few = f"{len(measured)} steady steps scale nothing: {LEAST} are needed"
        return Driven(
            name, folder, comparison, scale=None, notes=(*notes, few)
        )
    machine = installation(measured)
    remark = f"Scaled by steps of {name} (meshwright train --engine)"
    (folder / SCALED).write_text(dump_machine(machine, remark), "utf-8")
    return Driven(
        name, folder, comparison, scale=machine.installation, notes=notes
    )
