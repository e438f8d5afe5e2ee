"""What of a step waits in host memory instead of on the device: one text, parts joined by "+".

    none    activations:20    optimizer    optimizer:0.5+weights

`activations:N`: what N of the model's layers keep for the backward pass, spread evenly over the
stages (without N: all layers). `optimizer:S`: the states of a share S of the parameters that a
device updates, which the host's cores update (without S: of all). `weights`: its shards of weights
and gradients, which come and go as ZeRO-3 gathers and scatters them.

Sources: Megatron Core (cpu_offloading_num_layers, optimizer_offload_fraction), DeepSpeed (offload_
optimizer with its ratio, offload_param; Rajbhandari et al. 2021, arXiv 2104.07857), PyTorch FSDP2
(CPUOffloadPolicy).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ..errors import BadInput, unknown

PARTS = ("activations", "optimizer", "weights")


class Offload(NamedTuple):
    """A choice, read."""

    text: str
    """As a layout holds it."""
    activations: bool = False
    layers: int = 0
    """Of the model, whose activations leave; 0: all of them."""
    optimizer: float = 0.0
    """Share of the optimizer's states."""
    weights: bool = False

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
    if amounts.get("weights"):
        raise BadInput(
            "layout.offload weights takes no number: all or none of them"
        )
    layers = _number(amounts, "activations", whole=True)
    share = _number(amounts, "optimizer", whole=False)
    words = {
        "activations": f":{layers:g}" if layers else "",
        "optimizer": f":{share:g}" if share < 1 else "",
        "weights": "",
    }
    return Offload(
        "+".join(name + words[name] for name in PARTS if name in amounts),
        activations="activations" in amounts,
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
