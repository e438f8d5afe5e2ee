"""`Layout.offload` in the words of each tool: what of a step waits in host memory."""

from __future__ import annotations

from typing import Any

from ...describe.job import Job
from ...describe.offload import offload
from ...errors import BadInput
from .keys import Keys

Out = dict[str, Any]
CPU = "cpu"
DEEPSPEED = "zero_optimization.offload_{}.device"
RATIO = "zero_optimization.offload_optimizer.ratio"


def parts_joined(*parts: str) -> str | None:
    """The parts that there are."""
    return "+".join(part for part in parts if part) or None


# ---------------------------------------------------------------- Megatron


def megatron(k: Keys) -> str | None:
    """Layers whose activations leave; the share of the optimizer."""
    layers = k.whole("cpu_offloading_num_layers") or 0
    on = k.flag("cpu_offloading", layers > 0)
    on = k.flag("cpu_offloading_activations", True) and on and layers > 0
    if k.flag("cpu_offloading_weights") and layers:
        k.leave(
            "cpu_offloading_weights",
            "weights of some layers go to host memory too: the prediction keeps them",
        )
    share = k.number("optimizer_offload_fraction", 1.0) or 0.0
    away = k.flag("optimizer_cpu_offload") and share > 0
    return parts_joined(
        f"activations:{layers}" if on else "",
        f"optimizer:{share:g}" if away else "",
    )


def write_megatron(job: Job, out: Out) -> None:
    """Fewer layers than the model has."""
    away = offload(job.layout.offload)
    if away.weights:
        raise BadInput("Megatron keeps weights on the device: offload")
    if away.activations:
        if not 0 < away.layers < job.model.layers:
            raise BadInput(
                "Megatron offloads the activations of fewer layers than the model has: offload"
                f" activations:{job.model.layers - 1}"
            )
        out["cpu_offloading_num_layers"] = away.layers
    if away.optimizer:
        out["optimizer_cpu_offload"] = True
        out["optimizer_offload_fraction"] = away.optimizer
        out["use_precision_aware_optimizer"] = True  # it is part of that one


# ---------------------------------------------------------------- DeepSpeed


def deepspeed(k: Keys) -> str | None:
    """Devices of the optimizer and of the parameters."""
    states = on_host(k, DEEPSPEED.format("optimizer"))
    weights = on_host(k, DEEPSPEED.format("param"))
    share = k.number(RATIO, 1.0) or 1.0
    return parts_joined(
        f"optimizer:{share:g}" if states else "", "weights" if weights else ""
    )


def on_host(k: Keys, key: str) -> bool:
    """The device of a key is the host's memory; nvme is not known."""
    device = k.word(key)
    if device == "nvme":
        k.leave(key, "what is kept on disks is not predicted: on the device")
    return device == CPU


def write_deepspeed(job: Job, out: Out) -> None:
    away = offload(job.layout.offload)
    if away.activations:
        raise BadInput("DeepSpeed's file keeps no activations: offload")
    if away.optimizer:
        out[DEEPSPEED.format("optimizer")] = CPU
        if away.optimizer < 1 and job.layout.zero < 3:
            raise BadInput(
                "DeepSpeed offloads a share of the optimizer with ZeRO-3 only: offload optimizer"
            )
        if away.optimizer < 1:
            out[RATIO] = away.optimizer
    if away.weights:
        out[DEEPSPEED.format("param")] = CPU
