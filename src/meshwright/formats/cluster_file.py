"""The script of every node in the file of a cluster's scheduler (write only): a JobSet of
Kubernetes, a task of SkyPilot.

The script knows its first node by HEAD, its own number by NODE_RANK and the start by RUN; a batch
script of Slurm is `sbatch`.

Source: JobSet v1alpha2 (jobset.sigs.k8s.io: concepts; examples/simple/jobset-with-network.yaml,
examples/pytorch/gpu-training), whose pods are called <set>-<job>-<index>-<pod>.<set>; device
plugins of NVIDIA and AMD for the names of resources; SkyPilot's task YAML and its environment
variables (docs.skypilot.co, 2026), `sky gpus list -a` for the names of GPUs (bridges.toml).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ..describe.chip import Chip
from ..errors import BadInput
from . import read_text, torchrun
from .bridge.table import skypilot_names

RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""Vendor -> what Kubernetes calls its GPUs."""
LONGEST = 40
"""Letters of a name: a pod's has 63, numbers of job and pod among them."""


class NodeScript(NamedTuple):
    """What a cluster runs on each of its nodes."""

    text: str
    name: str
    nodes: int
    gpus: int
    """Of a node."""
    chip: Chip
    image: str | None = None

    @property
    def said(self) -> str:
        """What it is, for the reader."""
        nodes = f"{self.nodes} node{'s' * (self.nodes > 1)}"
        return f"{nodes} of {self.gpus} x {self.chip.name}. Written by meshwright export"

    def indented(self, width: int) -> str:
        """Its lines in a block of YAML, which begin no file."""
        lines = self.text.removeprefix("#!/bin/bash\n").rstrip()
        return textwrap.indent(lines, " " * width)

    @property
    def label(self) -> str:
        """The name in letters that hosts may have."""
        plain = re.sub(r"[^a-z0-9]+", "-", self.name.lower())[:LONGEST]
        return plain.strip("-") or "train"


def jobset(script: NodeScript) -> str:
    """A JobSet whose one job has a pod a node, all started again where one fails."""
    label, chip = script.label, script.chip
    resource = RESOURCES.get(chip.vendor.lower())
    if resource is None:
        raise BadInput(
            f"a JobSet asks for GPUs of {' or '.join(RESOURCES)}, and {chip.name} is none"
        )
    if script.image is None:
        raise BadInput(
            "--to jobset needs the image of its pods, such as --container"
            " nvcr.io/nvidia/pytorch:26.09-py3"
        )
    return f"""\
# {script.said}: kubectl apply -f THIS.
# Volumes (data, checkpoints), networks of RDMA and queues are your cluster's.
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {label}
spec:
  network:
    enableDNSHostnames: true
  failurePolicy:
    maxRestarts: 3
  replicatedJobs:
  - name: node
    replicas: 1
    template:
      spec:
        parallelism: {script.nodes}
        completions: {script.nodes}
        completionMode: Indexed
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            containers:
            - name: train
              image: "{script.image}"
              env:
              - name: HEAD
                value: {label}-node-0-0.{label}
              - name: RUN
                value: {label}
              resources:
                limits:
                  {resource}: {script.gpus}
              volumeMounts:
              - name: shm
                mountPath: /dev/shm
              command:
              - bash
              - -c
              - |
                export NODE_RANK="$JOB_COMPLETION_INDEX"
{script.indented(16)}
            volumes:
            - name: shm
              emptyDir:
                medium: Memory
"""


def skypilot(script: NodeScript) -> str:
    """A task of SkyPilot: `sky launch THIS`."""
    name = skypilot_names().get(script.chip.name)
    if name is None:
        known = ", ".join(skypilot_names())
        raise BadInput(
            f"SkyPilot's name of {script.chip.name} is not known: --to skypilot writes {known}"
        )
    image = f'  image_id: "docker:{script.image}"\n' if script.image else ""
    return f"""\
# {script.said}: sky launch THIS.
# setup, file_mounts and the cloud are yours.
name: {script.label}
num_nodes: {script.nodes}
resources:
  accelerators: "{name}:{script.gpus}"
{image}run: |
  export HEAD="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"
  export NODE_RANK="$SKYPILOT_NODE_RANK" RUN="$SKYPILOT_TASK_ID"
{script.indented(2)}
"""


FILES: dict[str, Callable[[NodeScript], str]] = {
    "jobset": jobset,
    "skypilot": skypilot,
}
"""What `export --to` calls it -> the file."""


def of_trainer(launch: torchrun.Launch) -> str:
    """What a node runs to train a job here, the job's file and all."""
    job = "job.toml"
    return "\n".join(
        [
            f"cat > {job} <<'END_OF_FILE'",
            read_text(launch.path).rstrip("\n"),
            "END_OF_FILE",
            torchrun.write_torchrun(replace(launch, path=job)),
        ]
    )
