"""How well a trace counts: every causal class of the installed transformers at its class defaults
against its own parameters, PyTorch's FLOP counter and the hand-written counts.

    python benchmarks/traced.py [FAMILY...] [--json FILE]

A line a family: parameters (exact or not), FLOPs of 1,024 tokens over those of FlopCounterMode, the
same of the hand-written counts, seconds of CPU. Needs `meshwright[hf]`; no network, no weights.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

T = 1024
"""Neither of the lengths that a trace runs."""
SECONDS = 300


@contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """A TimeoutError after so many seconds."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done within {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def counted(module: Any, run: Any) -> float:
    """FLOPs of PyTorch's counter."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    class Answers(TorchDispatchMode):
        """Whether all is true: yes."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func._schema.name.endswith("_local_scalar_dense"):
                return True
            return func(*args, **(kwargs or {}))

    with FlopCounterMode(display=False) as flops, Answers():
        run(T)
    return float(flops.get_total_flops())


def row(family: str) -> dict[str, Any]:
    """One family at its class defaults."""
    import torch
    from transformers import CONFIG_MAPPING

    from meshwright.count.model import operations, parameters
    from meshwright.errors import BadInput
    from meshwright.formats.hf import read_hf
    from meshwright.trace import build

    config = CONFIG_MAPPING[family]().to_dict() | {"model_type": family}
    of: dict[str, Any] = {"family": family}
    try:
        hand = read_hf(config)
        of["hand_parameters"] = parameters(hand)
        of["hand_flops"] = sum(
            float(op.forward.matrix) * n for op, n in operations(hand, T)
        )
    except BadInput as error:
        of["hand"] = str(error)
    try:
        given, text, _ = build.configured(config)
        with torch.device("meta"):
            module = build.built(given, text)
    except Exception as error:
        of["unbuilt"] = f"{type(error).__name__}: {error}"[:300]
        return of
    of["parameters"] = sum(p.numel() for p in module.parameters())
    start = time.process_time()
    try:
        made = build.model(config)
    except Exception as error:
        of["refused"] = f"{type(error).__name__}: {error}"[:300]
        return of
    of["cpu_s"] = time.process_time() - start
    of["traced_parameters"] = parameters(made)
    of["left_out"] = [n for n in made.notes if "left out" in n]
    of["traced_flops"] = sum(
        float(op.forward.matrix) * n for op, n in operations(made, T)
    )
    build.prepared(module)

    def run(tokens: int) -> Any:
        ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
        return module(input_ids=ids)

    try:
        of["flops"] = counted(module, run)
    except Exception as error:
        of["uncounted"] = f"{type(error).__name__}: {error}"[:300]
    return of


def line(of: dict[str, Any]) -> str:
    """A row in words."""
    name = f"{of['family']:28}"
    for key in ("unbuilt", "refused"):
        if key in of:
            return f"{name} {key}: {of[key][:120]}"
    exact = of["parameters"] == of["traced_parameters"]
    flops = of["traced_flops"] / of["flops"] if of.get("flops") else None
    hand = (
        of["hand_flops"] / of["flops"]
        if "hand_flops" in of and of.get("flops")
        else None
    )
    by_hand = (
        of["hand_parameters"] == of["parameters"]
        if "hand_parameters" in of
        else None
    )
    return (
        f"{name} parameters {'exact' if exact else of['traced_parameters'] / of['parameters']}"
        f"  flops {flops}  by hand {by_hand} {hand}  {of['cpu_s']:.1f} s"
    )


def main() -> None:
    """All causal families, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, logging

    logging.set_verbosity_error()
    causal = AutoModelForCausalLM._model_mapping._model_mapping
    rows = []
    for family in given.families or [k for k in CONFIG_MAPPING if k in causal]:
        try:
            with deadline(SECONDS):
                rows.append(row(family))
        except Exception as error:
            rows.append(
                {
                    "family": family,
                    "unbuilt": f"{type(error).__name__}: {error}"[:300],
                }
            )
        print(line(rows[-1]), flush=True)
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1), "utf-8")


if __name__ == "__main__":
    main()
