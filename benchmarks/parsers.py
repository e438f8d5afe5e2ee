"""Scripts of `export --to megatron` through Megatron-LM's own argument parser and its checks.

    git clone https://github.com/NVIDIA/Megatron-LM
    python benchmarks/parsers.py Megatron-LM            (needs torch; no GPU)

Ten best plans of five models on 256 H100 are written, and `parse_args` and `validate_args` of
megatron/training/arguments.py read them with the environment that the scripts set. What Megatron
imports and this machine lacks (triton, einops, ...) is replaced by modules that hold nothing;
its own optional parts (Transformer Engine, Apex) stay missing. Prints accepted of written, what
was refused, and what our writer would not write.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import io
import os
import shlex
import sys
import types
import typing
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

CHIPS, NODE = 256, 8
ASKED = {
    "llama3-8b": "512seq",
    "llama3-70b": "1024seq",
    "mixtral-8x7b": "512seq",
    "qwen2.5-32b": "1024seq",
    "deepseek-v3": "1024seq",
}
EMPTY = (
    "triton",
    "tqdm",
    "regex",
    "sentencepiece",
    "tiktoken",
    "einops",
    "requests",
    "omegaconf",
    "yaml",
    "packaging",
)
"""Modules that need not be there to read arguments."""
PROGRAM = "pretrain_gpt.py"


class Empty(types.ModuleType):
    """A module that has whatever is asked of it."""

    __path__: list[str] = []
    __version__ = "9.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for modules of `EMPTY` that are not installed."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.split(".")[0] in EMPTY:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def arguments(checkout: str) -> Any:
    """Megatron's module of arguments, on a machine without GPUs that passes for Hopper."""
    import torch._dynamo
    import torch._inductor.select_algorithm
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel
    import torch.utils._triton
    import torch.utils.flop_counter  # noqa: F401  before triton seems to be there

    torch.utils._triton.has_triton_package = lambda: False
    if not hasattr(typing, "override"):  # Python 3.11
        typing.override = lambda f: f
    sys.path.insert(0, checkout)
    sys.meta_path.append(Finder())
    from megatron.training import arguments as found

    found.get_device_arch_version = lambda: 9
    return found


def scripts(refused: Counter[str]) -> Iterator[tuple[str, str]]:
    """(plan, script) of every plan that can be written; refused: why others are not."""
    from meshwright import BadInput, search
    from meshwright.formats import bridge, flags
    from meshwright.formats.bridge.launch import Place

    for model, batch in ASKED.items():
        given = {
            "on": f"{CHIPS}xh100-sxm",
            "batch": batch,
            "framework": "megatron-core",
        }
        rest, space = flags.split(given)
        job = flags.read_flags(model, rest, search=True, fill=False)
        one = search.plan(job, space, families=False, top=10)
        for p in filter(None, (one.best, *one.alternatives)):
            place = Place(CHIPS // NODE, NODE)
            try:
                text, _ = bridge.write(
                    replace(job, layout=p.layout), "megatron", place
                )
            except BadInput as error:
                refused[str(error)] += 1
                continue
            yield f"{model} {p.layout}", text


def accepted(module: Any, text: str) -> str:
    """Empty, or why Megatron refuses the arguments of a script."""
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ |= {"WORLD_SIZE": str(CHIPS), "RANK": "0", "LOCAL_RANK": "0"}
    for line in text.splitlines():
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            os.environ[name] = value
    words = shlex.split(text.partition(PROGRAM)[2].replace("\\\n", " "))
    sys.argv = [PROGRAM, *words]
    said = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            module.validate_args(
                module.parse_args(), {"tokenizer_type": "NullTokenizer"}
            )
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error} {said.getvalue()[-200:]}"
    return ""


def main() -> int:
    """Exit 1 if one is refused."""
    refused: Counter[str] = Counter()
    every = [*scripts(refused)]
    module = arguments(sys.argv[1])
    wrong = [
        (plan, why) for plan, text in every if (why := accepted(module, text))
    ]
    print(f"Megatron-LM accepts {len(every) - len(wrong)} of {len(every)}")
    for plan, why in wrong:
        print(f"  refused: {plan}: {why}")
    for why, count in refused.items():
        print(f"  {count} not written: {why}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
