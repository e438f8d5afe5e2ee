"""Files of `export` through the readers of the tools that they are for.

    python benchmarks/parsers.py                       every format that installs (needs torch and pip)
    python benchmarks/parsers.py --best                ten best plans of five models instead
    python benchmarks/parsers.py --random 60           so many plans of two to five values at once
    python benchmarks/parsers.py torchtitan axolotl    these
    python benchmarks/parsers.py megatron --source megatron=Megatron-LM      a checkout, nothing installed

One plan for each value of each field (benchmarks/values.py), or the ten best plans of five models on
256 chips, are written in each format, and the tool itself reads them; what it would do is held
against the plan (benchmarks/parsers_of.py says what of it). The tools are installed without their dependencies,
each in a folder of its own; no GPU. Prints accepted of written, why others are refused, and what
our writer would not write; exit 1 if a file is refused.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

CHIPS, NODE = 256, 8
TRIES = 60
"""Draws for each plan that is written, at most."""
DENSE = {"llama3-8b": 512, "llama3-70b": 1024, "qwen3-32b": 1024}
MIXED = {**DENSE, "mixtral-8x7b": 512, "deepseek-v3": 1024}
SHARDED = {**DENSE, "qwen2.5-14b": 512, "mixtral-8x7b": 512}
KNOWN = {**DENSE, "qwen3-30b-a3b": 512, "deepseek-v3": 1024}
"""Model -> sequences of a batch: of what each tool has."""
TYPED = (
    *("pydantic==2.12.5", "pydantic-core==2.41.5", "annotated-types"),
    *("typing-inspection", "typing-extensions"),
)
FLAGS = (
    *("tyro==1.0.17", "typeguard", "shtab", "docstring-parser", "rich"),
    *("pygments", "markdown-it-py", "mdurl", "einops", "pillow", "fsspec"),
    *("typing-extensions", "tokenizers", "huggingface-hub", "safetensors"),
)
OMEGA = ("omegaconf", "antlr4-python3-runtime==4.9.3", "pyyaml", "packaging")
HUB = (
    *("filelock", "tqdm", "requests", "regex", "httpx", "httpcore", "h11"),
    *("anyio", "idna", "certifi", "sniffio", "fsspec", "pyyaml", "packaging"),
)


@dataclass(frozen=True)
class Tool:
    """What plans are made for, and what must be installed to read them."""

    framework: str
    models: dict[str, int]
    packages: tuple[str, ...]
    """Empty: a checkout is needed (--source)."""
    chip: str = "h100-sxm"


TOOLS = {
    "megatron": Tool("megatron-core", MIXED, ()),
    "megatron-bridge": Tool(
        "megatron-bridge",
        {**KNOWN, "qwen3-32b": 1024},
        (
            *("megatron-bridge==0.3.1", "megatron-core==0.16.1"),
            *("hydra-core==1.3.2", *OMEGA),
        ),
    ),
    "torchtitan": Tool(
        "torchtitan",
        KNOWN,
        ("torchtitan==0.3.0", "spmd-types==0.2.3", *FLAGS),
    ),
    "torchtitan-toml": Tool(
        "torchtitan", KNOWN, ("torchtitan==0.2.2", *FLAGS)
    ),
    "deepspeed": Tool(
        "deepspeed-zero3",
        SHARDED,
        (
            *("deepspeed==0.19.8", "hjson", "py-cpuinfo", "psutil", "tqdm"),
            *("msgpack", "einops", "packaging", *TYPED),
        ),
    ),
    "accelerate": Tool(
        "fsdp",
        SHARDED,
        (
            *("accelerate==1.15.0", "transformers==5.16.1", "safetensors"),
            *("tokenizers==0.23.1", "huggingface-hub==1.17.0", "hf-xet"),
            *("psutil", *HUB),
        ),
    ),
    "axolotl": Tool(
        "fsdp",
        SHARDED,
        (
            *("axolotl==0.19.0", "transformers==5.16.1", "accelerate==1.13.0"),
            *("tokenizers==0.23.1", "huggingface-hub==1.17.0", "safetensors"),
            *("pillow", "psutil", "hf-xet", *HUB, *TYPED),
        ),
    ),
    "maxtext": Tool(
        "maxtext",
        MIXED,
        (
            *(
                "maxtext==0.2.5",
                "jax==0.10.2",
                "jaxlib==0.10.2",
                "ml-dtypes",
                "opt-einsum",
            ),
            *("jinja2", "markupsafe", "psutil", "absl-py", "etils", *OMEGA),
            *("importlib-resources", "zipp", "fsspec", *TYPED),
        ),
        "tpu-v5p",
    ),
}


def plans(name: str, refused: Counter[str]) -> Iterator[dict[str, Any]]:
    """What each best plan is and its text; refused: why others are not written."""
    from meshwright import BadInput, search
    from meshwright.formats import bridge, flags
    from meshwright.formats.bridge.launch import Place

    tool = TOOLS[name]
    for model, batch in tool.models.items():
        given = {"on": f"{CHIPS}x{tool.chip}", "batch": f"{batch}seq"}
        given |= {"framework": tool.framework, "tokens": "1T"}
        rest, space = flags.job_and_space(given)
        job = flags.read_flags(model, rest, fill=False)
        one = search.plan(job, space, families=False, top=10)
        for p in filter(None, (one.best, *one.alternatives)):
            place = Place(CHIPS // NODE, NODE)
            l = p.layout
            try:
                text, _ = bridge.write(replace(job, layout=l), name, place)
            except BadInput as error:
                refused[str(error)] += 1
                continue
            yield row(f"{model} {l}", replace(job, layout=l), text)


def by_value(name: str, refused: Counter[str]) -> Iterator[dict[str, Any]]:
    """The same of one plan for each value of each field (benchmarks/values.py)."""
    import values

    from meshwright import BadInput
    from meshwright.formats import bridge
    from meshwright.formats.bridge.launch import Place

    for said, job in values.plans(name):
        place = Place(values.CHIPS // NODE, NODE)
        try:
            if isinstance(job, str):
                raise BadInput(job)
            text, _ = bridge.write(job, name, place)
        except BadInput as error:
            refused[str(error)] += 1
            continue
        yield row(str(said), job, text)


def at_random(
    name: str, refused: Counter[str], count: int
) -> Iterator[dict[str, Any]]:
    """The same of so many plans that are written, of several values each."""
    import values

    from meshwright import BadInput
    from meshwright.formats import bridge
    from meshwright.formats.bridge.launch import Place

    drawn = values.random_plans(name)
    for said, job in itertools.islice(drawn, TRIES * count):
        place = Place(values.CHIPS // NODE, NODE)
        try:
            if isinstance(job, str):
                raise BadInput(job)
            text, _ = bridge.write(job, name, place)
        except BadInput as error:
            refused[str(error)] += 1
            continue
        yield row(str(said), job, text)
        count -= 1
        if not count:
            return


def row(plan: str, job: Any, text: str) -> dict[str, Any]:
    """A file, and what its tool must make of it."""
    from meshwright.describe.framework import framework
    from meshwright.describe.recompute import recompute, resolve
    from meshwright.layout.stages import stage_count, stage_layers

    l = job.layout
    stages = stage_layers(job.model.layers, stage_count(l), l.stages)
    program = job.framework or framework("megatron-core")
    parts = resolve(l.recompute, program.selective)
    names = (
        "tp",
        "cp",
        "pp",
        "dp",
        "ep",
        "etp",
        "dp_replicate",
        "microbatch",
        "zero",
    )
    return {
        "plan": plan,
        "text": text,
        "chips": int(l.chips),
        "batch": job.batch,
        "seq": job.T,
        "layers": job.model.layers,
        **{n: int(getattr(l, n)) for n in names},
        "experts": job.model.moe is not None,
        "microbatches": int(job.batch // (l.dp * l.microbatch)),
        "stages": [len(stage) for stage in stages],
        "interleave": int(l.interleave),
        "recompute": l.recompute,
        "recomputed": recompute(l.recompute).layers,
        "parts": "+".join(sorted(parts.split("+"))),
        "groups": groups(job),
    }


def groups(job: Any) -> dict[str, list[int]]:
    """Ranks of the group that rank 0 is in, for each axis of a plan: what each tool lays out as
    tp nearest, then cp, dp and pp, or pp nearer than dp; experts beside their tensor slices.
    """
    from meshwright.formats.bridge.shared import STAGES_NEARER
    from meshwright.layout.placement import AXES, lies

    l = job.layout
    usual = lies(l, job.cluster.sizes, AXES)
    found, stride = {}, 1
    for axis in AXES if usual else STAGES_NEARER:
        degree = int(getattr(l, axis))
        found[axis] = [stride * n for n in range(degree)]
        stride *= degree
    found["ep"] = [int(l.etp) * n for n in range(int(l.ep))]
    return found


def install(name: str, folder: Path) -> None:
    """The packages of a tool into a folder, none of what they depend on."""
    done = folder / "installed"
    if not done.exists():
        options = [
            "--no-deps",
            "--no-build-isolation",
            "--upgrade",
            "--target",
        ]
        options += [str(folder), "--ignore-requires-python", "--quiet"]
        command = [sys.executable, "-m", "pip", "install", *options]
        environment = {**os.environ, "DS_BUILD_OPS": "0"}
        wanted = TOOLS[name].packages
        subprocess.run([*command, *wanted], check=True, env=environment)
        done.touch()


def checked(
    name: str,
    source: str | None,
    work: Path,
    best: bool = False,
    drawn: int = 0,
) -> tuple[int, int]:
    """(Accepted, written) of the ten best plans of some models, of plans drawn at random, or of one
    plan for each value; prints what was refused, and by whom.
    """
    refused: Counter[str] = Counter()
    if drawn:
        rows = [*at_random(name, refused, drawn)]
    else:
        rows = [*(plans if best else by_value)(name, refused)]
    written = work / f"{name}.json"
    written.write_text(json.dumps(rows), "utf-8")
    folder = Path(source) if source else work / name
    if source is None:
        install(name, folder)
    reader = Path(__file__).with_name("parsers_of.py")
    command = [sys.executable, str(reader), name, str(written), str(folder)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    out = subprocess.run(
        command, capture_output=True, text=True, env=environment
    )
    if out.returncode:
        raise SystemExit(f"{name} does not run here: {out.stderr[-2000:]}")
    found = json.loads(out.stdout.splitlines()[-1])
    packages = TOOLS[name].packages
    title = packages[0] if packages and not source else f"{name} ({source})"
    compared = found["compared"]
    print(
        f"{title} accepts {found['accepted']} of {len(rows)}; {refused.total()} not written;"
        f" {sum(compared.values())} values as planned: "
        + ", ".join(f"{what} {count}" for what, count in compared.items())
    )
    reasons = Counter(found["refused"].values())
    for why, count in reasons.items():
        first = next(p for p, w in found["refused"].items() if w == why)
        print(f"  {count} refused: {why} (such as {first})")
    for why, count in refused.items():
        print(f"  {count} not written: {why}")
    return found["accepted"], len(rows)


def main() -> int:
    """Exit 1 if a file is refused."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("formats", nargs="*", help=", ".join(TOOLS))
    reader.add_argument("--source", action="append", default=[])
    reader.add_argument("--work", help="a folder that keeps what is installed")
    reader.add_argument(
        "--best", action="store_true", help="ten best plans of five models"
    )
    reader.add_argument(
        "--random", type=int, default=0, help="so many plans drawn at random"
    )
    given = reader.parse_args()
    sources = dict(pair.split("=", 1) for pair in given.source)
    names = given.formats or [n for n, t in TOOLS.items() if t.packages]
    work = Path(given.work or tempfile.mkdtemp(prefix="parsers-"))
    work.mkdir(parents=True, exist_ok=True)
    found = [
        checked(name, sources.get(name), work, given.best, given.random)
        for name in names
    ]
    return int(any(accepted < written for accepted, written in found))


if __name__ == "__main__":
    sys.exit(main())
