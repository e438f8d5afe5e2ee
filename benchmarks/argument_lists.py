"""Names of every setting that other tools have, from the syntax trees of their sources.

    python benchmarks/argument_lists.py tests/formats/argument_lists.json TOOL=FOLDER ...

TOOL: megatron, megatron-bridge, torchtitan, torchtitan-toml, deepspeed, accelerate, axolotl,
maxtext, nanotron, llama-factory, gpt-neox, olmo, levanter, litgpt; FOLDER: its checkout, or its wheel unpacked; several apart by commas, such as older
releases. Nothing of theirs is run. A tool that is not named keeps the list that it has.

tests/formats/test_argument_lists.py holds catalog/bridges.toml against these lists: what a file
says is called harmless only by a name that somebody has looked at.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MEGATRON = "NVIDIA/Megatron-LM d98e8a6, and releases v2.6, 23.04, core 0.8, 0.11 and 0.14"
SOURCES = {
    "megatron": MEGATRON,
    "megatron-bridge": "NVIDIA-NeMo/Megatron-Bridge 067f987",
    "torchtitan": "torchtitan 0.3.0 (PyPI)",
    "torchtitan-toml": "torchtitan 0.2.2 (PyPI)",
    "deepspeed": "deepspeedai/DeepSpeed edaa722 (0.19.6)",
    "accelerate": "accelerate 1.15.0 (PyPI)",
    "axolotl": "axolotl 0.19.0 (PyPI)",
    "maxtext": "maxtext 0.2.5 (PyPI)",
    "nanotron": "huggingface/nanotron 2411b02",
    "llama-factory": "hiyouga/LLaMA-Factory ff6d4d1",
    "gpt-neox": "EleutherAI/gpt-neox ea7aefd",
    "olmo": "allenai/OLMo 59a53e3",
    "levanter": "stanford-crfm/levanter 9263f81",
    "litgpt": "Lightning-AI/litgpt 2685705",
    "transformers": "transformers 5.24.0 and trl 1.16.0 (PyPI), and the"
    " programs of alignment-handbook 925acdf and open-r1 1416fa0",
}
"""Tool -> what was read; names alone are taken."""
PLACES = {
    "megatron": ("megatron/**/*argument*.py", "megatron/**/*config*.py")
    + ("megatron/core/model_parallel_config.py", "pretrain_*.py"),
    "megatron-bridge": ("src/megatron/bridge/training/*.py",)
    + (
        "src/megatron/bridge/models/*.py",
        "src/megatron/bridge/models/**/*provider*.py",
    )
    + ("src/megatron/bridge/peft/*.py", "scripts/**/*.py"),
    "torchtitan": ("torchtitan/config/*.py", "torchtitan/trainer.py")
    + ("torchtitan/components/**/*.py", "torchtitan/tools/profiler.py")
    + ("torchtitan/distributed/*.py",),
    "torchtitan-toml": ("torchtitan/config/job_config.py",),
    "deepspeed": ("deepspeed/**/*config*.py", "deepspeed/**/constants.py"),
    "accelerate": ("accelerate/commands/**/*.py",),
    "axolotl": (
        "axolotl/utils/schemas/*.py",
        "axolotl/integrations/*/args.py",
    ),
    "maxtext": ("maxtext/configs/*.py", "maxtext/configs/base.yml"),
    "nanotron": ("src/nanotron/config/*.py",),
    "llama-factory": ("src/llamafactory/hparams/*.py",),
    "gpt-neox": ("megatron/neox_arguments/*.py",),
    "olmo": ("olmo/config.py",),
    "levanter": ("src/levanter/**/*.py",),
    "litgpt": ("litgpt/args.py", "litgpt/config.py"),
    "transformers": ("transformers/training_args.py", "trl/**/*config*.py")
    + ("trl/scripts/utils.py", "src/alignment/*.py", "src/open_r1/configs.py")
    + ("scripts/*.py",),
}
"""Where their settings stand."""


NAME = r"[a-z]\w*_\w+|[a-z]{2,}"
"""A name, and no sentence."""


def names(tool: str, folder: Path) -> set[str]:
    """All settings of a tool: fields of classes, flags, keys of its YAML."""
    files = {f for place in PLACES[tool] for f in folder.glob(place)}
    found: set[str] = set()
    for file in files:
        text = file.read_text("utf-8", errors="replace")
        if file.suffix == ".yml":
            found |= {*re.findall(r"(?m)^(\w+):", text)}
            continue
        tree = ast.parse(text)
        found |= {*fields(tree), *flags(tree)}
        if tool in ("deepspeed", "accelerate"):
            found |= {*words(tree)}
    return {name for name in found if not name.startswith("__")}


def fields(tree: ast.AST) -> Iterator[str]:
    """Fields of classes that have a type."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.AnnAssign):
                    yield ast.unparse(line.target)


def flags(tree: ast.AST) -> Iterator[str]:
    """Flags of a command line, hyphens as underscores."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for word in node.args:
                if isinstance(word, ast.Constant):
                    text = str(word.value)
                    if re.fullmatch(r"--[A-Za-z][\w-]*", text):
                        yield text[2:].replace("-", "_")


def words(tree: ast.AST) -> Iterator[str]:
    """Names in quotes: DeepSpeed and accelerate ask dictionaries for theirs."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and re.fullmatch(NAME, text):
            yield text


def main() -> None:
    """Reads the folders and writes the lists."""
    path = Path(sys.argv[1])
    lists = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for said in sys.argv[2:]:
        tool, _, folders = said.partition("=")
        found = {n for f in folders.split(",") for n in names(tool, Path(f))}
        lists[tool] = {"": SOURCES[tool], "names": " ".join(sorted(found))}
    text = json.dumps(dict(sorted(lists.items())), indent=1)
    path.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
