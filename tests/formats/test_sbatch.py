"""`export`: scripts say what the job says, run past a shell's parser, and refuse what torchrun or
Slurm cannot do.
"""

from __future__ import annotations

import math
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshwright import __version__, catalog
from meshwright.describe.network import Dim
from meshwright.formats import sbatch, torchrun
from meshwright.formats.sbatch import Slurm
from meshwright.formats.toml import load_job
from meshwright.formats.toml_writer import dumps_toml
from meshwright.formats.torchrun import Launch
from meshwright.report.text import seconds
from refusals import refusal
from shell import Shell

TABLES: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"on": "64xh100-sxm"},
    "layout": {
        "tp": 4,
        "pp": 2,
        "dp": 8,
        "zero": 1,
        "sequence_parallel": True,
    },
    "job": {"batch": "256seq", "seq": 4096},
}
GOLDEN = """\
#!/bin/bash
# 64 ranks on 8 nodes: tp 4, cp 1, dp 8, pp 2. Written by meshwright export from job.toml;
# submit it where that path is right, on a file system that all nodes share. It goes on with what the run's folder holds.
#SBATCH --job-name=llama3-8b
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --partition=gpu
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append
#SBATCH --exclusive
#SBATCH --requeue

export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
export OMP_NUM_THREADS=2
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
ranks='' again=''
trap 'again=yes; kill -TERM $ranks' USR1  # the time limit is near: save and end

srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_ON_NODE" --gpus-per-node=8 \\
    torchrun --nnodes=8 --nproc-per-node=8 --max-restarts=3 --shutdown-timeout=240 \\
        --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" --rdzv-endpoint="$head:29500" \\
        -m meshwright train job.toml --device cuda --resume &
ranks=$!
wait $ranks; code=$?
while kill -0 $ranks 2>/dev/null; do wait $ranks; code=$?; done  # a trap cuts wait short
if [ "$again" ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $code
"""


pytestmark = pytest.mark.usefixtures("elsewhere")


def job(name: str = "job.toml", **changes: Any) -> str:
    """A JOB.toml, with other tables than usual; None leaves one out."""
    tables = {
        key: value
        for key, value in {
            **TABLES,
            "train": {"device": "cuda", "threads": 2},
            **changes,
        }.items()
        if value is not None
    }
    Path(name).write_text(dumps_toml(tables), "utf-8")
    return name


def test_the_whole_script(shell: Shell) -> None:
    line = f"export {job()} --to sbatch --partition gpu --time 24:00:00"
    assert shell(line).out == GOLDEN
    assert shell(f"{line} -o job.sbatch").out == ""
    assert Path("job.sbatch").read_text("utf-8") == GOLDEN
    data = shell.json(line)
    fields = ("verb", "nodes", "ranks_per_node", "text")
    assert [data[k] for k in fields] == ["export", 8, 8, GOLDEN]


def launch(nodes: int, ranks: int, path: str = "job.toml") -> Launch:
    return Launch(load_job(TABLES), path, nodes, ranks, "cuda")


def test_a_shell_reads_it_and_passes_signals_on() -> None:
    """With a stand-in for Slurm: torchrun is asked to end when USR1 comes, and the job goes back
    into the queue; a plain end does not.
    """
    bash = shutil.which("bash")
    if not bash:
        pytest.skip("needs bash")
    Path("bin").mkdir()
    fakes = {
        "srun": (
            '[ "$2" = --cpus-per-task=96 ] || exit 9; shift 3; trap "echo TERM >> log; exit 1"'
            ' TERM; printf "%s\\n" "$@" >> log; echo up > up; while [ -f up ]; do sleep 0.05; done;'
            " exit 7"
        ),
        "scontrol": '[ "$1" = show ] && printf "n1\\nn2\\n" || echo "$@" >> log',
    }
    for name, text in fakes.items():
        (Path("bin") / name).write_text(f"#!{bash}\n{text}\n")
        (Path("bin") / name).chmod(0o755)
    script = sbatch.write_sbatch(
        launch(8, 8, "my job's.toml"), Slurm(container="img:1")
    )
    environment = {
        "PATH": f"{Path('bin').resolve()}:/usr/bin:/bin",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_ID": "42",
        "SLURM_CPUS_ON_NODE": "96",
    }
    for warned in (True, False):
        Path("log").write_text("")
        with subprocess.Popen(
            [bash, "-u", "-c", script], env=environment
        ) as process:
            while not Path("up").exists():
                assert process.poll() is None
            process.send_signal(10) if warned else Path("up").unlink()
            assert process.wait(30) == (1 if warned else 7)
        Path("up").unlink(missing_ok=True)
        log = Path("log").read_text().splitlines()
        assert (
            "--rdzv-endpoint=n1:29500" in log
            and "--rdzv-id=42.0" in log
            and "my job's.toml" in log
        )
        assert "--container-image=img:1" in log
        assert log[-2 if warned else -4 :] == (
            ["TERM", "requeue 42"]
            if warned
            else ["my job's.toml", "--device", "cuda", "--resume"]
        )


def test_the_line_for_torchrun(shell: Shell) -> None:
    more = "--to torchrun --restarts 0 --per-node 4"
    words = shlex.split(shell(f"export '{job('a b.toml')}' {more}").out)
    assert words[:3] == [
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
        "OMP_NUM_THREADS=2",
        "torchrun",
    ]
    assert {
        "--nnodes=16",
        "--nproc-per-node=4",
        "--max-restarts=0",
        "--rdzv-endpoint=$HEAD:29500",
    } <= set(words)
    assert words[-7:] == [
        "-m",
        "meshwright",
        "train",
        "a b.toml",
        "--device",
        "cuda",
        "--resume",
    ]


def test_torchrun_knows_every_option() -> None:
    """PyTorch's own parser reads the line."""
    run = pytest.importorskip("torch.distributed.run")
    words = shlex.split(torchrun.write_torchrun(launch(8, 8)))
    parsed = run.parse_args(words[words.index("torchrun") + 1 :])
    assert (
        parsed.nnodes,
        parsed.nproc_per_node,
        parsed.max_restarts,
        parsed.shutdown_timeout,
    ) == (
        "8",
        "8",
        3,
        240,
    )
    assert (parsed.rdzv_backend, parsed.module, parsed.training_script) == (
        "c10d",
        True,
        "meshwright",
    )
    assert parsed.training_script_args == [
        "train",
        "job.toml",
        "--device",
        "cuda",
        "--resume",
    ]


def test_nodes_follow_the_network() -> None:
    whole = load_job(TABLES)
    small = load_job({**TABLES, "layout": {"tp": 2, "dp": 2}})
    assert (
        torchrun.nodes(whole) == (8, 8)
        and torchrun.nodes(small) == (1, 4)
        and torchrun.nodes(whole, 16) == (4, 16)
    )
    with refusal("64 ranks do not fill nodes of 5.*may be 1, 2, 4, 8"):
        torchrun.nodes(whole, 5)
    ring = replace(
        whole.cluster.network,
        dims=(
            Dim("x", 1e9, 1e-6, 8, kind="ring"),
            *whole.cluster.network.dims[1:],
        ),
    )
    with refusal("its first dimension is a ring"):
        torchrun.nodes(
            replace(whole, cluster=replace(whole.cluster, network=ring))
        )
    wide = replace(
        whole.cluster.network,
        dims=(replace(whole.cluster.network.dims[0], size=64),),
    )
    with refusal("joins 64 chips over several servers: give --per-node"):
        torchrun.nodes(
            replace(whole, cluster=replace(whole.cluster, network=wide))
        )


SERVER = {
    "gb200": 4,
    "gb300": 4,
    "lbl-a100": 4,
    "h100-pcie": 4,
    "gh200-96": 4,
    "gh200-144": 4,
}
"""GPUs of a server, by hand; elsewhere those below the last dimension, 8 at most."""
GPUS = [
    name
    for name in catalog.names("chips")
    if catalog.chip(name).vendor in ("NVIDIA", "AMD")
]


@pytest.mark.parametrize("chip", GPUS)
def test_the_job_of_every_gpu_asks_for_gpus(chip: str, shell: Shell) -> None:
    """Whatever [train] leaves open: as many GPUs of each node as there are in it, for sbatch and
    srun, and cuda for the ranks.
    """
    precision = "bf16" if "bf16" in catalog.chip(chip).matrix_flops else "fp16"
    small = {**TABLES["layout"], "recompute": "full"}  # 16 GB hold it too
    described = job(
        cluster={"on": f"64x{chip}"},
        job={**TABLES["job"], "precision": precision},
        layout=small,
        train=None,
    )
    script = shell(f"export {described} --to sbatch").out
    *near, _ = catalog.cluster(f"64x{chip}").network.dims
    size = SERVER.get(chip, min(math.prod(d.size or 1 for d in near), 8))
    lines = script.splitlines()
    assert (
        f"#SBATCH --gpus-per-node={size}" in lines
        and f"#SBATCH --nodes={64 // size}" in lines
    )
    start = next(line for line in lines if line.startswith("srun "))
    assert (
        f" --gpus-per-node={size} " in start
        and ' --cpus-per-task="$SLURM_CPUS_ON_NODE" ' in start
    )
    assert " train job.toml --device cuda " in script
    assert not re.search(r"= |=$", script, re.MULTILINE), (
        "shellcheck SC1007: a name=, then a space"
    )
    assert "--device cuda" in shell(f"export {described} --to torchrun").out


def test_cpus_for_gpus_only_if_asked(
    shell: Shell,
) -> None:
    line = f"export {job(train={'device': 'cpu', 'threads': 3})} --to sbatch"
    told = shell.refused(line)
    assert (
        "this plan is for h100-sxm, but [train] device is 'cpu'" in told
        and "--device cpu" in told
    )
    text, told = shell(f"{line} --device cpu")
    assert (
        "#SBATCH --cpus-per-task=24\n" in text
        and "gpus-per-node" not in text
        and "run on CPUs" in told
    )
    assert (
        "srun --kill-on-bad-exit=1 --cpus-per-task=24 " in text
        and "--device cpu --resume" in text
    )
    assert "--time" not in text and "--partition" not in text


def test_an_unknown_vendor_runs_as_the_file_says(
    shell: Shell,
) -> None:
    for train, device in ((None, "cpu"), ({"device": "cuda"}, "cuda")):
        own = {"on": "64xh100-sxm", "chip": {"vendor": ""}}
        assert (
            f"--device {device} "
            in shell(
                "export", job(cluster=own, train=train), "--to torchrun"
            ).out
        )


def test_a_written_plan_is_started_on_gpus(
    shell: Shell,
) -> None:
    """plan -o says the device; train reads it, export agrees."""
    words = "llama3-8b --on 16xh100-sxm --batch 64seq --pp 1 --ep 1 --zero 3 --recompute full"
    shell(f"plan {words} -o plan.toml")
    written = tomllib.loads(Path("plan.toml").read_text("utf-8"))
    assert written["train"] == {"device": "cuda"} and not {
        "tokens",
        "seq",
    } & set(written["job"])
    first = Path("plan.toml").read_text("utf-8").splitlines()[0]
    step = shell.json("predict plan.toml")["step_time_s"]
    assert (
        first.startswith("# llama3-8b on 16xh100-sxm: ")
        and seconds(step) in first
        and __version__ in first
    )
    assert "--device cuda" in shell("export plan.toml --to torchrun").out


@pytest.mark.parametrize(
    ("changes", "words", "says"),
    [
        ({"layout": None}, "", "has no table [layout]: meshwright plan"),
        (
            {
                "layout": {
                    **TABLES["layout"],
                    "scheme": "summa",
                    "pp": 1,
                    "tp": 8,
                }
            },
            "",
            "not summa",
        ),
        ({}, "--to sbach", "did you mean sbatch"),
        ({}, "--to torchrun --time 1", "--time is for --to sbatch"),
        ({}, "--time soon", "must look like"),
        ({}, "--partition 'a b'", "may only hold"),
        ({}, "--account 'x\n#SBATCH --nodes=1'", "may only hold"),
        ({}, "--container '$(reboot)'", "may only hold"),
        ({}, "--restarts -1", "at least 0"),
        ({}, "--device tpu", "--device must be cpu or cuda"),
        (
            {"cluster": {"on": "64xtpu-v5p"}},
            "--per-node 4",
            "tpu-v5p of Google",
        ),
        (
            {},
            "--restarts 3 --to safetensors",
            "--restarts is for what starts a job",
        ),
        ({}, "--per-node 0", "do not fill nodes of 0"),
        ({}, "-o nowhere/x", "cannot be written"),
    ],
)
def test_refusals_are_sentences(
    changes: Any, words: str, says: str, shell: Shell
) -> None:
    to = "" if "--to" in words else "--to sbatch"
    assert says in shell.refused(f"export {job(**changes)} {to} {words}")


def test_no_model_in_place_of_a_job(
    shell: Shell,
) -> None:
    assert "export needs a JOB.toml" in shell.refused(
        "export llama3-8b --to sbatch"
    )


def test_a_plan_for_gpus_is_exported_where_no_pytorch_is(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever plans on a laptop has none; the ranks run elsewhere."""
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    path = job(train={"device": "cuda"})
    for to in ("sbatch", "torchrun"):
        assert "--device cuda" in shell(f"export {path} --to {to}").out
