"""What is exported through the tools' own readers: by what they are called here, and by the tools
themselves, which takes minutes each.

pytest -m parsers tests/formats/test_parsers.py                     (PARSERS=FOLDER keeps what is installed)
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from meshwright.formats import bridge
from meshwright.formats.bridge import table

HERE = Path(__file__).parent
BENCHMARKS = HERE.parents[1] / "benchmarks"


def loaded(name: str) -> ModuleType:
    """A file of benchmarks, which is no package."""
    spec = importlib.util.spec_from_file_location(
        name, BENCHMARKS / f"{name}.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


loaded("values")
PARSERS, PARSERS_OF = loaded("parsers"), loaded("parsers_of")
INSTALLED = [name for name, tool in PARSERS.TOOLS.items() if tool.packages]
"""Megatron-LM needs a checkout: benchmarks/parsers.py megatron --source megatron=FOLDER."""


@pytest.mark.parsers
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("best", [True, False])
@pytest.mark.parametrize("name", INSTALLED)
def test_plans_are_accepted_as_they_were_meant(
    name: str, best: bool, tmp_path: Path
) -> None:
    """Ten best plans of five models, and one plan for each value of each field."""
    pytest.importorskip("torch")
    folder = Path(os.environ.get("PARSERS", tmp_path))
    accepted, written = PARSERS.checked(name, None, folder, best)
    assert accepted == written >= 10


# ---------------------------------------------------------------- without the tools


@pytest.mark.parametrize("name", [*table.written()])
def test_each_value_of_each_field_is_written_or_refused(name: str) -> None:
    """In a sentence; what is written was read back as the plan before it was given out."""
    refused: Counter[str] = Counter()
    rows = [*PARSERS.by_value(name, refused)]
    assert len(rows) >= (20 if table.get(name).own else 25) and refused
    assert len(rows) + refused.total() >= 120
    for why in refused:
        assert len(why) > 20 and "\n" not in why


def written_keys(name: str, text: str) -> set[str]:
    """Keys of an exported file as its tool names them, without the tables they stand in."""
    if name in ("megatron", "megatron-bridge", "torchtitan"):
        program = {
            "megatron": "pretrain_gpt.py",
            "megatron-bridge": "run_recipe.py",
            "torchtitan": "torchtitan.train",
        }[name]
        words = PARSERS_OF.words(text, program)
        said = [w[2:] for w in words if w.startswith("--")]
        said += [w.partition("=")[0] for w in words if "=" in w]
        keys = [word.replace("-", "_") for word in said]
    else:
        kind = {"deepspeed": "json", "torchtitan-toml": "toml"}.get(
            name, "yaml"
        )
        keys = [*bridge._tree(text, kind, "x")]
    return {key.rpartition(".")[2] for key in keys}


@pytest.mark.parametrize("name", [*table.written()])
def test_each_key_that_is_written_is_a_setting_of_its_tool(name: str) -> None:
    """argument_lists.json holds the names of all settings of each tool, from its own sources."""
    lists = json.loads((HERE / "argument_lists.json").read_text("utf-8"))
    known = set(lists[name]["names"].split())
    if name == "gpt-neox":  # which hands some to DeepSpeed
        known |= {*lists["deepspeed"]["names"].split()}
    if "megatron" in name:
        known |= {*lists["megatron"]["names"].split()}
        flags = json.loads((HERE / "megatron_arguments.json").read_text())
        known |= {flag.replace("-", "_") for flag in flags}
    seen = set()
    for row in PARSERS.by_value(name, Counter()):
        seen |= written_keys(name, row["text"])
    assert len(seen) >= 5
    if name == "torchtitan":  # tyro's switches; ConfigManager's own --module
        seen = {key.removeprefix("no_") for key in seen} - {"module"}
    assert sorted(seen - known) == []


def test_megatron_has_each_argument_and_takes_its_value() -> None:
    """megatron_arguments.json holds the names, words and types of Megatron-LM's own parser."""
    known = json.loads((HERE / "megatron_arguments.json").read_text("utf-8"))
    kinds = {"int": int, "float": float, "str": str}
    for row in PARSERS.by_value("megatron", Counter()):
        words = PARSERS_OF.words(row["text"], "pretrain_gpt.py")
        starts = [i for i, w in enumerate(words) if w.startswith("--")]
        assert starts[0] == 0
        for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
            name, values = words[start][2:], words[start + 1 : end]
            assert name in known, name
            takes = known[name]
            if isinstance(takes, list):
                assert values and {*values} <= {*takes}, (name, values)
            elif takes == "nothing":
                assert not values, (name, values)
            else:
                assert values, name
                for value in values:
                    kinds.get(takes, str)(value)


def test_a_script_starts_its_program_with_no_arguments_of_its_own() -> None:
    """\"$@\" is what the script itself is given; no tool sees it."""
    text = 'run pretrain_gpt.py \\\n    --bf16 \\\n    "$@"\n'
    assert PARSERS_OF.words(text, "pretrain_gpt.py") == ["--bf16"]
