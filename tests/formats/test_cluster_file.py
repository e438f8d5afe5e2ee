"""JobSets and tasks of SkyPilot: what a cluster reads of them, field by field, and that the script
in them is the one a shell takes.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from meshwright import catalog
from meshwright.formats.cluster_file import NodeScript, skypilot
from refusals import refusal
from shell import Shell

yaml = pytest.importorskip("yaml")

SMALL = 'tp = 4\nzero = 1\nrecompute = "full"'
"""Fits, in the trainer of this project too."""


def plan(tmp_path: Path, on: str, layout: str, job: str = "") -> str:
    path = tmp_path / "plan.toml"
    path.write_text(
        f'[model]\nname = "llama3-8b"\n[cluster]\non = "{on}"\n'
        f'[job]\nbatch = "64seq"\n{job}\n[layout]\n{layout}\n'
    )
    return str(path)


def runs(script: str) -> None:
    """A shell reads the script."""
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, "-n"], input=script, text=True, capture_output=True
    )
    assert not done.stderr


def test_a_jobset_field_by_field(tmp_path: Path, shell: Shell) -> None:
    path = plan(tmp_path, "32xh100-sxm", "tp = 8\nzero = 1")
    image = "nvcr.io/nvidia/pytorch:26.09-py3"
    asked = "--to jobset --starts megatron --container"
    text = shell(f"export {path} {asked} {image}").out
    said = yaml.safe_load(text)
    assert said["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert said["kind"] == "JobSet"
    assert said["metadata"] == {"name": "llama3-8b"}
    assert said["spec"]["network"] == {"enableDNSHostnames": True}
    (job,) = said["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    assert (job["name"], job["replicas"]) == ("node", 1)
    # a pod a node, whose number is its JOB_COMPLETION_INDEX
    assert spec["parallelism"] == spec["completions"] == 4
    assert (spec["completionMode"], spec["backoffLimit"]) == ("Indexed", 0)
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    assert container["image"] == image
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    # <set>-<job>-<index>-<pod>.<set> of examples/simple/jobset-with-network.yaml
    assert {e["name"]: e["value"] for e in container["env"]} == {
        "HEAD": "llama3-8b-node-0-0.llama3-8b",
        "RUN": "llama3-8b",
    }
    *called, script = container["command"]
    assert called == ["bash", "-c"]
    assert "--nnodes=4 --nproc-per-node=8" in script
    assert "--tensor-model-parallel-size 8" in script and "#!" not in script
    assert pod["volumes"] == [
        {"name": "shm", "emptyDir": {"medium": "Memory"}}
    ]
    assert container["volumeMounts"] == [
        {"name": "shm", "mountPath": "/dev/shm"}
    ]
    runs(script)


def test_a_task_of_skypilot_field_by_field(
    tmp_path: Path, shell: Shell
) -> None:
    path = plan(tmp_path, "16xa100-80", "zero = 3", 'framework = "torchtitan"')
    said = yaml.safe_load(shell(f"export {path} --to skypilot").out)
    assert [*said] == ["name", "num_nodes", "resources", "run"]
    assert (said["name"], said["num_nodes"]) == ("llama3-8b", 2)
    assert said["resources"] == {"accelerators": "A100-80GB:8"}
    assert "torchtitan.train" in said["run"]
    first = said["run"].splitlines()[0]
    assert first == 'export HEAD="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"'
    runs(said["run"])
    with_image = shell(f"export {path} --to skypilot --container a/b:1").out
    image = yaml.safe_load(with_image)["resources"]["image_id"]
    assert image == "docker:a/b:1"


@pytest.mark.parametrize("to", ["jobset", "skypilot"])
def test_our_own_trainer_finds_its_job(
    tmp_path: Path, shell: Shell, to: str
) -> None:
    path = plan(tmp_path, "16xh100-sxm", SMALL)
    text = shell(f"export {path} --to {to} --container a/b").out
    said = yaml.safe_load(text)
    script = (
        said["run"]
        if to == "skypilot"
        else said["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
            "spec"
        ]["containers"][0]["command"][2]
    )
    bash = shutil.which("bash")
    assert bash
    folder = tmp_path / to
    folder.mkdir()
    called = folder / "torchrun"
    called.write_text('#!/bin/sh\necho "$@" > said\n')
    called.chmod(0o755)
    subprocess.run(
        [bash, "-c", script],
        cwd=folder,
        env={
            "PATH": f"{folder}:/usr/bin:/bin",
            "HEAD": "first",
            "RUN": "7",
            "JOB_COMPLETION_INDEX": "1",
            "SKYPILOT_NODE_IPS": "first\nsecond",
            "SKYPILOT_NODE_RANK": "1",
            "SKYPILOT_TASK_ID": "7",
        },
        check=True,
    )
    words = (folder / "said").read_text()
    assert "--nnodes=2" in words and "--rdzv-endpoint=first:29500" in words
    assert "--rdzv-id=7" in words and "train job.toml" in words
    assert (folder / "job.toml").read_text() == Path(path).read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--to jobset", "--to jobset needs the image of its pods"),
        (
            "--to skypilot --time 3",
            "--time is for --to sbatch: skypilot has no such option",
        ),
        (
            "--to torchrun --container a",
            "--container is for --to sbatch or jobset or skypilot",
        ),
        ("--to k8s", "did you mean jobset?"),
        ("--to jobset --starts gpt-neox", "starts its ranks itself"),
    ],
)
def test_what_a_file_cannot_say_is_refused(
    tmp_path: Path,
    shell: Shell,
    words: str,
    said: str,
) -> None:
    path = plan(tmp_path, "16xh100-sxm", SMALL)
    assert said in shell.refused(f"export {path} {words}")


def test_a_chip_without_a_name_is_refused() -> None:
    script = NodeScript("a\n", "m", 1, 8, catalog.chip("h20"))
    with refusal("SkyPilot's name of h20 is not known"):
        skypilot(script)


@pytest.mark.parametrize("to", ["sbatch", "jobset", "skypilot"])
def test_accelerate_is_told_where_its_nodes_meet(
    tmp_path: Path, shell: Shell, to: str
) -> None:
    # its launcher knows no --nnodes, and takes its rendezvous from these three
    path = plan(tmp_path, "16xh100-sxm", "zero = 3")
    text = shell(
        f"export {path} --to {to} --starts accelerate --container a"
    ).out
    (line,) = (
        line
        for line in text.splitlines()
        if "accelerate launch --config_file acc" in line
    )
    head = "$head" if to == "sbatch" else "${HEAD:?first node}"
    assert line.endswith(
        "--rdzv_backend c10d --machine_rank 0"
        f' --main_process_ip "{head}" --main_process_port 29500 \\'
    )
    assert "--nnodes" not in line and "--nproc" not in line


@pytest.mark.parametrize("to", ["sbatch", "jobset"])
def test_each_node_of_maxtext_says_its_number(
    tmp_path: Path, shell: Shell, to: str
) -> None:
    # max_utils.py, initialize_jax_for_gpu: JAX_COORDINATOR_IP and _PORT, NNODES, NODE_RANK
    layout = 'zero = 3\nrecompute = "full"'
    path = plan(tmp_path, "16xh100-sxm", layout, 'framework = "maxtext"')
    text = shell(f"export {path} --to {to} --starts maxtext --container a").out
    assert "env NNODES=2 JAX_COORDINATOR_IP=" in text
    assert "JAX_COORDINATOR_PORT=29500" in text and "torchrun" not in text
    number = "$SLURM_NODEID" if to == "sbatch" else '"${NODE_RANK:?'
    assert f"NODE_RANK={number}" in text
    if to == "sbatch":
        runs(text)
        # the number is asked for on the node, not where srun is called
        assert "bash -c 'NODE_RANK=$SLURM_NODEID exec \"$@\"' node env" in text
