"""What of a step waits in host memory instead of on the device: one text, parts joined by "+".

    none    activations:20    inputs    optimizer    optimizer:0.5+weights

`activations:N`: what N of the model's layers keep for the backward pass, spread evenly over the
stages (without N: all layers); `inputs`: of it the inputs of layers alone; `results`: all but them.
What is computed again (`describe.recompute`) is not kept. `optimizer:S`: the states of a share S of
the parameters that a device updates, which the host's cores update (without S: of all). `weights`:
its shards of weights and gradients, which come and go as ZeRO-3 gathers and scatters them.

Sources: Megatron Core (cpu_offloading_num_layers, optimizer_offload_fraction), MaxText (remat_
policy custom and qkv_proj_offloaded; utils/maxtext_utils.py, commit e591f30), DeepSpeed (offload_
optimizer with its ratio, offload_param; Rajbhandari et al. 2021, arXiv 2104.07857), PyTorch FSDP2
(CPUOffloadPolicy).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ..errors import BadInput, unknown

ACTIVATIONS = ("activations", "inputs", "results")
PARTS = (*ACTIVATIONS, "optimizer", "weights")


class Offload(NamedTuple):
    """A choice, read."""

    text: str
    """As a layout holds it."""
    inputs: bool = False
    """Inputs of layers."""
    results: bool = False
    """Whatever else layers keep."""
    layers: int = 0
    """Of the model, whose activations leave; 0: all of them."""
    optimizer: float = 0.0
    """Share of the optimizer's states."""
    weights: bool = False

    @property
    def activations(self) -> bool:
        """Some of what layers keep for the backward pass."""
        return self.inputs or self.results

    def share(self, layers: int) -> float:
        """Share of a model's layers whose activations leave the device."""
        if not self.activations:
            return 0.0
        return min(self.layers / layers, 1.0) if self.layers else 1.0


@cache
def offload(text: str) -> Offload:
    """What a layout's text says; BadInput names the parts there are."""
    if not isinstance(text, str):
        raise BadInput(
            f"layout.offload must be a text, not {str(text)[:40]!r}"
        )
    if text == "none":
        return Offload(text)
    amounts: dict[str, str] = {}
    for word in text.split("+"):
        name, _, amount = word.strip().partition(":")
        if name not in PARTS:
            raise unknown("layout.offload", name, ("none", *PARTS))
        if name in amounts:
            raise BadInput(f"layout.offload names {name} twice")
        amounts[name] = amount
    if len(kept := [name for name in ACTIVATIONS if name in amounts]) > 1:
        raise BadInput(
            f"layout.offload names {' and '.join(kept)}: say one, activations for all of them"
        )
    for name in ("inputs", "results", "weights"):
        if amounts.get(name):
            raise BadInput(
                f"layout.offload {name} takes no number: all or none of them"
            )
    layers = _number(amounts, "activations", whole=True)
    share = _number(amounts, "optimizer", whole=False)
    numbers = {
        "activations": f":{layers:g}" if layers else "",
        "optimizer": f":{share:g}" if share < 1 else "",
    }
    return Offload(
        "+".join(
            name + numbers.get(name, "") for name in PARTS if name in amounts
        ),
        inputs=kept in (["activations"], ["inputs"]),
        results=kept in (["activations"], ["results"]),
        layers=int(layers),
        optimizer=share if "optimizer" in amounts else 0.0,
        weights="weights" in amounts,
    )


def _number(amounts: dict[str, str], name: str, whole: bool) -> float:
    """Layers (whole; 0: all) or a share up to 1 behind the colon of a part."""
    text = amounts.get(name, "")
    if not text:
        return 0.0 if whole else 1.0
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    fine = 1 <= value <= 1e5 and value % 1 == 0 if whole else 0 < value <= 1
    if not fine:
        kind = "a number of layers" if whole else "a share up to 1"
        raise BadInput(
            f"layout.offload {name} takes {kind}, such as"
            f" {name}:{'20' if whole else '0.5'}, not {text[:20]!r}"
        )
    return value


__all__ = ["PARTS", "Offload", "offload"]
