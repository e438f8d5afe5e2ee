"""How well a trace counts: every causal class of the installed transformers at its class defaults
and with settings drawn at random, against its own parameters, PyTorch's FLOP counter and the
hand-written counts.

    python benchmarks/traced.py [FAMILY...] [--draws 8] [--json FILE]
    python benchmarks/traced.py --files CONFIGS.json [--json FILE]
    python benchmarks/traced.py --table FILE...

CONFIGS.json: {"rows": [{"config": {...}}, ...]}. A line a configuration: parameters (exact or not),
FLOPs of 1,024 tokens over those of FlopCounterMode, the same of the hand-written counts, seconds of
CPU. The exit status says whether any is wrong or too few are exact. Needs `meshwright[hf]`; no
network, no weights.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import os
import random
import re
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

T = 1024
"""None of the lengths that a trace runs."""
SHORT = 96
"""Of a run on numbers."""
SMALL = 3e8
"""Parameters of a model that runs on numbers where PyTorch's counter cannot do without."""
SECONDS = 200
NEAR = 0.01
"""Of FLOPs."""
SHARE = 0.97
"""Of configurations that build: as many must be exact, and none wrong."""
TRIES = 12
"""Draws of which one must run in transformers itself."""
SIZES = re.compile(
    r"hidden|intermediate|ffn|inner|embd|d_model|head|layer|expert|rank|state|window|vocab|group"
)
SWITCHES = re.compile(r"^tie_word|bias$|^use_.*bias|qk_norm")


class Late(BaseException):
    """No Exception: what catches those of a model's code must not catch it."""


@contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """Late after so many seconds of CPU."""

    def late(*_: object) -> None:
        raise Late(f"not done within {seconds} s of CPU")

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def counted(module: Any, tokens: int) -> float:
    """FLOPs of PyTorch's counter."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    class Answers(TorchDispatchMode):
        """Whether all is true: yes."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            asks = func._schema.name.endswith("_local_scalar_dense")
            if asks and args[0].is_meta:
                return True
            return func(*args, **(kwargs or {}))

    device = next(module.parameters()).device
    ids = torch.zeros(1, tokens, dtype=torch.long, device=device)
    with FlopCounterMode(display=False) as flops, Answers():
        module(input_ids=ids)
    return float(flops.get_total_flops())


def sentence(error: BaseException) -> str:
    """An error, shortened."""
    return f"{type(error).__name__}: {error}"[:300]


def reference(config: Mapping[str, Any]) -> dict[str, Any]:
    """What transformers and PyTorch count."""
    import torch

    from meshwright.trace import build

    try:
        given, text, _ = build.configured(config)
        with torch.device("meta"):
            module = build.built(given, text)
    except Exception as error:
        return {"unbuilt": sentence(error)}
    made: dict[str, Any] = {
        "parameters": sum(p.numel() for p in module.parameters())
    }
    with_even_experts(module)
    longest = getattr(text, "max_position_embeddings", None) or T
    longest = longest if longest > 0 else T
    try:
        made["flops"] = counted(module, min(T, int(longest)))
        made["tokens"] = min(T, int(longest))
    except Exception as error:
        made["uncounted"] = sentence(error)
        if made["parameters"] <= SMALL:
            made |= on_numbers(text)
    return made


def with_even_experts(module: Any) -> None:
    """Experts in two stacks of matrices with a loop over those that the data choose, which does not
    run without numbers, take as many FLOPs by evenly spread tokens.
    """
    for child in module.modules():
        shapes = [
            getattr(getattr(child, name, None), "shape", ())
            for name in ("gate_up_proj", "down_proj")
        ]
        loops = "nonzero(" in inspect.getsource(type(child).forward)
        if [len(s) for s in shapes] == [3, 3] and loops:
            child.forward = partial(even_experts, child, shapes)


def even_experts(
    module: Any, shapes: list[Any], x: Any, chosen: Any, _: Any
) -> Any:
    """k T rows by a matrix of each stack, less those of choices without one (idle experts)."""
    count = shapes[1][0]
    every = getattr(module, "total_experts", count)
    rows = round(chosen.numel() * count / every)
    for _, read, made in shapes:
        x.new_empty(rows, read) @ x.new_empty(read, made)
    return x.clone()


def on_numbers(text: Any) -> dict[str, Any]:
    """FLOPs of a run on numbers, of code that asks for them; why not where it does not run."""
    from transformers import AutoModelForCausalLM

    try:
        module = AutoModelForCausalLM.from_config(
            text, attn_implementation="eager"
        )
        return {"flops": counted(module, SHORT), "tokens": SHORT}
    except Exception as error:
        return {"unrun": sentence(error)}


def tied(config: Mapping[str, Any]) -> bool | None:
    """Whether a linear layer of the whole class shares the matrix of its embedding; None for what
    has no language model inside or does not build with its towers.
    """
    import torch
    import transformers

    of = transformers.CONFIG_MAPPING[config["model_type"]]
    given = of.from_dict(copy.deepcopy(dict(config)))
    if given.get_text_config(decoder=True) is given:
        return None
    for kind in ("MultimodalLM", "ImageTextToText", "Seq2SeqLM", "CausalLM"):
        auto = getattr(transformers, f"AutoModelFor{kind}")
        if type(given) not in auto._model_mapping.keys():  # noqa: SIM118
            continue
        try:
            with torch.device("meta"):
                whole = auto.from_config(given)
        except Exception:  # towers that need other packages
            return None
        table = whole.get_input_embeddings().weight
        return any(
            isinstance(child, torch.nn.Linear) and child.weight is table
            for child in whole.modules()
        )
    return None


def by_hand(config: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """What the tables of families count."""
    from meshwright.count.model import operations, parameters
    from meshwright.errors import BadInput
    from meshwright.formats.hf import read_hf

    try:
        model = read_hf(config)
    except BadInput as error:
        return {"hand": str(error)}
    flops = sum(
        float(op.forward.matrix) * n for op, n in operations(model, tokens)
    )
    return {"hand_parameters": parameters(model), "hand_flops": flops}


def row(config: Mapping[str, Any]) -> dict[str, Any]:
    """One configuration."""
    from meshwright.count.model import operations, parameters
    from meshwright.errors import BadInput
    from meshwright.trace import build

    made = reference(config)
    if "unbuilt" in made:
        return made
    made |= by_hand(config, made.get("tokens", T))
    start = time.process_time()
    try:
        model = build.build_model(config)
    except BadInput as error:
        return made | {"refused": str(error)[:300]}
    except Exception as error:
        return made | {"raised": sentence(error)}
    made["cpu_s"] = time.process_time() - start
    made["ties"] = tied(config) in (None, model.tied_embeddings)
    left = re.search(
        r"with ([\d,]+) parameters, are left", " ".join(model.notes)
    )
    made["left_out"] = int(left[1].replace(",", "")) if left else 0
    made["traced_parameters"] = parameters(model)
    made["traced_flops"] = sum(
        float(op.forward.matrix) * n
        for op, n in operations(model, made.get("tokens", T))
    )
    return made


def defaults(family: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A class's own configuration; a decoder alone of classes that have an encoder beside it."""
    from transformers import CONFIG_MAPPING

    of = CONFIG_MAPPING[family]
    alone = {"is_encoder_decoder": False, "is_decoder": True}
    first = of()
    if hasattr(first, "text_config"):
        text = type(first.text_config)(**changes)
        changes = {"text_config": text.to_dict()}
    first = of(**changes)
    if getattr(first, "is_encoder_decoder", False):
        first = of(**changes, **alone)
    made: dict[str, Any] = first.to_dict() | {"model_type": family}
    return made


def drawn(family: str, rng: random.Random) -> dict[str, Any]:
    """One to three settings of the class or of its text part, and how many layers."""
    own = defaults(family, {})
    inner = own.get("text_config")
    table = inner if isinstance(inner, dict) else own
    sizes = [
        k
        for k, v in table.items()
        if SIZES.search(k) and type(v) is int and v > 0
    ]
    switches = [
        k
        for k, v in table.items()
        if SWITCHES.search(k) and isinstance(v, bool)
    ]
    changes: dict[str, Any] = {}
    for key in rng.sample(
        sizes + switches, min(rng.randint(1, 3), len(sizes))
    ):
        value = table[key]
        changes[key] = (
            not value
            if isinstance(value, bool)
            else max(int(value * rng.choice((0.25, 0.5, 0.75, 1.5, 2))), 1)
        )
    for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        if key in table:
            changes[key] = layers = min(rng.randint(2, 8), table[key])
            changes |= {
                k: v[:layers]
                for k, v in table.items()
                if isinstance(v, list) and len(v) == table[key] > layers
            }
    return changes


def draws(family: str, count: int, runs: bool) -> Iterator[dict[str, Any]]:
    """Rows of configurations that the class takes. runs: its defaults do, so these must."""
    for number in range(count):
        rng = random.Random(f"{family} {number}")
        for _ in range(TRIES):
            changes = drawn(family, rng)
            try:
                made = row(defaults(family, changes))
            except Exception:  # the class takes no such settings
                continue
            if "unbuilt" not in made and (not runs or "flops" in made):
                yield made | {"drawn": changes}
                break


def verdict(of: Mapping[str, Any]) -> str:
    """unbuilt, unrun, refused, exact or wrong, which an error that is no sentence is too. unrun:
    transformers itself stops at the same error.
    """
    error = of.get("uncounted", "").partition(":")[0]
    own = error not in ("", "NotImplementedError") and "flops" not in of
    if own and f"({error}:" in of.get("refused", ""):
        return "unrun"
    for key in ("unbuilt", "refused"):
        if key in of:
            return key
    if "raised" in of or not of.get("ties", True):
        return "wrong"
    same = of["traced_parameters"] + of["left_out"] == of["parameters"]
    near = (
        "flops" not in of
        or abs(of["traced_flops"] - of["flops"]) <= NEAR * of["flops"]
    )
    return "exact" if same and near else "wrong"


def line(of: Mapping[str, Any]) -> str:
    """A row in words."""
    name = f"{of['family']:28}"
    for key in ("unbuilt", "refused", "raised"):
        if key in of:
            return f"{name} {key}: {of[key][:120]}"
    whole = of["traced_parameters"] + of["left_out"]
    flops = of["traced_flops"] / of["flops"] if "flops" in of else None
    hand = (
        of["hand_flops"] / of["flops"]
        if "hand_flops" in of and "flops" in of
        else None
    )
    same = of.get("hand_parameters") == of["traced_parameters"]
    return (
        f"{name} {verdict(of)}: parameters {whole / of['parameters']:.6f}  flops {flops}"
        f"  by hand {same if 'hand_parameters' in of else None} {hand}  {of['cpu_s']:.1f} s"
    )


def rows(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What the command line asks for."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    if given.files:
        for one in json.loads(given.files.read_text("utf-8"))["rows"]:
            config = one["config"]
            name = str(config.get("model_type"))
            with deadline(SECONDS):
                try:
                    made = row(config)
                except Late as error:
                    made = {"refused": sentence(error)}
            source = f"{one.get('source', '')} {one.get('path', '')}".strip()
            yield {"family": name, "set": "files", "source": source} | made
        return
    causal = AutoModelForCausalLM._model_mapping._model_mapping
    for family in given.families or [k for k in CONFIG_MAPPING if k in causal]:
        try:
            with deadline(SECONDS):
                first = row(defaults(family, {}))
        except (Exception, Late) as error:
            first = {"unbuilt": sentence(error)}
        yield {"family": family, "set": "defaults"} | first
        if "unbuilt" in first:
            continue
        try:
            with deadline(SECONDS):
                for made in draws(family, given.draws, "flops" in first):
                    yield {"family": family, "set": "draws"} | made
        except Late:
            continue


def table(made: list[dict[str, Any]]) -> str:
    """Counts of each set, and what was refused."""
    lines = [
        "| set | configurations | build | do not run | exact | wrong | refused | FLOPs compared | largest difference | by hand: same parameters | CPU s, median (most) |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    names = {
        "defaults": "class defaults",
        "draws": "settings drawn at random",
        "files": "public files",
    }
    for key, name in names.items():
        part = [of for of in made if of["set"] == key]
        if not part:
            continue
        of = Counter(map(verdict, part))
        traced = [r for r in part if "traced_flops" in r]
        flops = [
            abs(r["traced_flops"] / r["flops"] - 1)
            for r in traced
            if r.get("flops")
        ]
        hand = [r for r in traced if "hand_parameters" in r]
        same = sum(
            r["hand_parameters"] == r["traced_parameters"] for r in hand
        )
        seconds = sorted(r["cpu_s"] for r in traced)
        lines.append(
            f"| {name} | {len(part)} | {len(part) - of['unbuilt']} | {of['unrun']} | {of['exact']} | {of['wrong']}"
            f" | {of['refused']} | {len(flops)} | {max(flops, default=0):.2%}"
            f" | {same} of {len(hand)} | {seconds[len(seconds) // 2]:.1f} ({seconds[-1]:.0f}) |"
        )
    for word, key, sets in (
        ("Refused", "refused", names),
        ("Do not run in transformers itself", "unrun", names),
        ("Not built at class defaults", "unbuilt", ("defaults",)),
    ):
        those = sorted(
            {
                r["family"]
                for r in made
                if verdict(r) == key and r["set"] in sets
            }
        )
        if those:
            lines += ["", f"{word}: {', '.join(f'`{f}`' for f in those)}."]
    return "\n".join(lines)


def main() -> None:
    """All causal families, those named, or the configurations of a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--draws", type=int, default=0)
    parser.add_argument("--files", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    given = parser.parse_args()
    if given.table:
        print(
            table([r for f in given.table for r in json.loads(f.read_text())])
        )
        return
    warnings.simplefilter("ignore")
    from transformers import logging

    logging.set_verbosity_error()
    made = []
    for one in rows(given):
        made.append(one)
        print(line(one), flush=True)
        if given.json:
            given.json.write_text(json.dumps(made, indent=1), "utf-8")
    of = Counter(map(verdict, made))
    built = of["exact"] + of["wrong"] + of["refused"]
    if of["wrong"] or of["exact"] < SHARE * built:
        raise SystemExit(
            f"{of['wrong']} wrong, {of['exact']} of {built} exact"
        )


if __name__ == "__main__":
    main()
