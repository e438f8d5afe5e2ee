"""The tools' own readers, each with the checks that the tool makes before a run.

Run by benchmarks/parsers.py in an environment that has the tool; imports nothing of ours:

    python benchmarks/parsers_of.py FORMAT ROWS.json FOLDER
    python benchmarks/parsers_of.py arguments tests/formats/megatron_arguments.json Megatron-LM

FOLDER holds the tool. What it imports and a configuration does not need (triton, datasets, ...) is
replaced by modules that hold nothing. Prints JSON: how many are accepted, and why others are not.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import io
import json
import logging
import math
import os
import shlex
import sys
import tempfile
import types
import typing
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

Row = dict[str, Any]
Reader = Callable[[Row], None]
"""Raises whatever the tool raises."""
LAUNCHED = ("ACCELERATE_", "FSDP_", "PARALLELISM_", "TORCH_", "WORLD_SIZE")
"""Names of the environment that a launcher sets."""
MEGATRON = "NVIDIA/Megatron-LM d98e8a6 (2026-08-22), BSD-3-Clause: names, words and types alone"
MEGATRON_SIZES = {
    "tensor_model_parallel_size": "tp",
    "context_parallel_size": "cp",
    "pipeline_model_parallel_size": "pp",
    "expert_model_parallel_size": "ep",
    "micro_batch_size": "microbatch",
    "global_batch_size": "batch",
    "num_distributed_optimizer_instances": "dp_replicate",
}
"""Megatron's name of a size -> that of a row."""
REST = "$@"
"""The arguments of the script itself, of which it is given none here."""
TOPOLOGY = {64: "v5p-128", 256: "v5p-512"}
"""Chips -> what Google calls the slice, which counts cores."""


class Empty(types.ModuleType):
    """A module that has whatever is asked of it: classes by names that begin so, else stand-ins."""

    __path__: list[str] = []
    __version__ = "9.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name[0].isupper():
            taken = classmethod(lambda cls, key: cls)
            made = {
                "__class_getitem__": taken,
                "__init__": lambda *a, **k: None,
            }
            return type(name, (), made)
        return MagicMock(name=name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for modules of these names, where nothing else is found."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name in self.names or name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def without(*names: str) -> None:
    """Stand-ins for modules that are missing; PyTorch first, which looks for some of them itself."""
    for name in ("torch._dynamo", "torch.utils.flop_counter"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.meta_path.append(Finder(*names))


@contextlib.contextmanager
def file(text: str, suffix: str) -> Iterator[str]:
    """The path of a file that holds the text."""
    with tempfile.NamedTemporaryFile("w", suffix=suffix) as written:
        written.write(text)
        written.flush()
        yield written.name


def words(text: str, program: str) -> list[str]:
    """The arguments behind a program in a script."""
    said = shlex.split(text.partition(program)[2].replace("\\\n", " "))
    return [word for word in said if word != REST]


COMPARED: Counter[str] = Counter()
"""What was held against a plan -> how many plans have it as the tool does."""


def demand(got: Any, wanted: Any, what: str) -> None:
    """What the tool understood is what was planned."""
    if got != wanted:
        raise ValueError(f"{what}: {got} for {wanted}")
    COMPARED[what] += 1


@contextlib.contextmanager
def ranks(count: int) -> Iterator[None]:
    """A process group of so many ranks, of which this process is the first and the only one."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group(
        "fake", rank=0, world_size=count, store=FakeStore()
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def demand_group(mesh: Any, row: Row, axis: str) -> None:
    """The group of rank 0 in a mesh of PyTorch's: its ranks, in order; none of one rank."""
    got = [0] if mesh is None else mesh.mesh.flatten().tolist()
    demand(got, row["groups"][axis], f"group of {axis}")


def megatron(folder: str) -> Reader:
    """parse_args and validate_args of megatron/training/arguments.py, as on Hopper."""
    for name in (
        "distributed.checkpoint",
        "distributed.fsdp",
        "utils._triton",
    ):
        importlib.import_module(f"torch.{name}")
    import torch._inductor.select_algorithm
    import torch.distributed.tensor.parallel

    hopper = types.SimpleNamespace(major=9, minor=0)
    torch.cuda.get_device_properties = lambda *a: hopper
    torch.cuda.get_device_capability = lambda *a: (9, 0)
    torch.utils._triton.has_triton_package = lambda: False
    if not hasattr(typing, "override"):  # Python 3.11
        typing.override = lambda f: f  # type: ignore[attr-defined]
    without(
        *("triton", "tqdm", "regex", "sentencepiece", "tiktoken", "einops"),
        *("requests", "omegaconf", "yaml", "packaging"),
    )
    from megatron.training import arguments  # type: ignore[import-not-found]

    arguments.get_device_arch_version = lambda: 9
    arguments.is_te_min_version = lambda *a, **k: True

    def read(row: Row) -> None:
        os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0"}
        os.environ["WORLD_SIZE"] = str(row["chips"])
        for line in row["text"].splitlines():
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").partition("=")
                os.environ[name] = value
        sys.argv = ["x.py", *words(row["text"], "pretrain_gpt.py")]
        known = {"tokenizer_type": "NullTokenizer"}
        args = arguments.validate_args(arguments.parse_args(), known)
        demand(args.data_parallel_size, row["dp"], "data_parallel_size")
        for theirs, ours in MEGATRON_SIZES.items():
            demand(getattr(args, theirs), row[ours], theirs)
        if row["experts"]:
            demand(args.expert_tensor_parallel_size, row["etp"], "etp")
        sharded = args.use_distributed_optimizer or args.use_megatron_fsdp
        sharded |= args.use_layer_wise_distributed_optimizer  # Muon's own
        demand(bool(sharded), row["zero"] > 0, "sharded")
        if row["recompute"].startswith("full"):
            demand(args.recompute_granularity, "full", "recomputed")
            block = args.recompute_method == "block"
            count = args.recompute_num_layers if block else 0
            demand(count, row["recomputed"], "recomputed layers of a stage")
        elif row["recompute"] != "none":
            demand(args.recompute_granularity, "selective", "recomputed")
            modules = args.recompute_modules or ["core_attn"]  # its default
            parts = "+".join(sorted(modules))
            demand(parts, row["parts"], "recomputed parts")
        _stages(args, row)
        _megatron_groups(args, row)

    return read


def _megatron_groups(args: Any, row: Row) -> None:
    """Ranks as parallel_state lays them out, and the microbatches of its calculator."""
    from megatron.core import (
        num_microbatches_calculator as calculator,  # type: ignore[import-not-found]
    )
    from megatron.core.parallel_state import (  # type: ignore[import-not-found]
        RankGenerator,
    )

    nearer = (
        args.use_tp_pp_dp_mapping
    )  # initialize.py, _initialize_distributed
    order = "tp-cp-ep-pp-dp" if nearer else "tp-cp-ep-dp-pp"
    tp, pp = args.tensor_model_parallel_size, args.pipeline_model_parallel_size
    cp, ep = args.context_parallel_size, args.expert_model_parallel_size
    etp = args.expert_tensor_parallel_size or tp
    dense = RankGenerator(tp, 1, args.data_parallel_size, pp, cp, order)
    rest = args.world_size // (etp * ep * pp)
    experts = RankGenerator(etp, ep, rest, pp, 1, order)
    for axis in ("tp", "cp", "dp", "pp"):
        demand(
            dense.get_ranks(axis)[0], row["groups"][axis], f"group of {axis}"
        )
    demand(experts.get_ranks("ep")[0], row["groups"]["ep"], "group of ep")
    calculator.unset_num_microbatches_calculator()
    calculator.init_num_microbatches_calculator(
        rank=0,
        global_batch_size=args.global_batch_size,
        micro_batch_size=args.micro_batch_size,
        data_parallel_size=args.data_parallel_size,
    )
    count = calculator.get_num_microbatches()
    demand(count, row["microbatches"], "microbatches")


def megatron_arguments(folder: str) -> dict[str, Any]:
    """Names of Megatron's arguments -> the words that each takes, or how many values of what type."""
    megatron(folder)
    from megatron.training import arguments

    parser = argparse.ArgumentParser(allow_abbrev=False)
    arguments.add_megatron_arguments(parser)
    found: dict[str, Any] = {}
    for action in parser._actions:
        kind = (
            getattr(action.type, "__name__", "str") if action.type else "str"
        )
        words = [str(getattr(c, "name", c)) for c in action.choices or ()]
        takes = words or (kind if action.nargs != 0 else "nothing")
        for flag in action.option_strings:
            if flag.startswith("--") and action.dest != "help":
                found[flag[2:]] = (
                    [*words, "..."] if words and action.nargs else takes
                )
    return {"": MEGATRON, **dict(sorted(found.items()))}


def _stages(args: Any, row: Row) -> None:
    """The layers of each stage, as Megatron's layout of a pipeline has them, or its even share."""
    chunks = args.virtual_pipeline_model_parallel_size or 1
    demand(chunks, row["interleave"] if row["pp"] > 1 else 1, "chunks")
    layout = args.pipeline_model_parallel_layout
    if layout is not None:
        from megatron.core.transformer.pipeline_parallel_layer_layout import (  # type: ignore[import-not-found]
            PipelineParallelLayerLayout,
        )

        layout = PipelineParallelLayerLayout.from_str(str(layout), row["pp"])
        flat = [
            layout.layout[rank][chunk]
            for chunk in range(chunks)
            for rank in range(row["pp"])
        ]
        found = [sum(kind.name == "decoder" for kind in part) for part in flat]
    else:
        ends = [0] * (row["pp"] * chunks)
        ends[0] += bool(args.account_for_embedding_in_pipeline_split)
        ends[-1] += bool(args.account_for_loss_in_pipeline_split)
        each = (args.num_layers + sum(ends)) // len(ends)
        found = [each - end for end in ends]
    demand(found, row["stages"], "layers of each stage")


def torchtitan_flags(folder: str) -> Reader:
    """ConfigManager of 0.3 with the configuration's own checks, ParallelDims, and the stages."""
    from torchtitan.config.manager import (  # type: ignore[import-not-found]
        ConfigManager,
    )
    from torchtitan.distributed import (  # type: ignore[import-not-found]
        parallel_dims,
        pipeline_parallel,
    )

    def read(row: Row) -> None:
        given = words(row["text"], "torchtitan.train")
        found = ConfigManager().parse_args(given)
        said = found.parallelism
        _recomputed(found.activation_checkpoint, row)
        dims = _dims(parallel_dims.ParallelDims, said, row)
        model = found.model_spec.model
        demand(len(model.layers), row["layers"], "layers")
        demand(found.training.global_batch_size, row["batch"], "batch")
        parts = said.module_fqns_per_model_part
        if row["pp"] > 1 and parts is None:
            count, layers, ends = _pipeline(
                pipeline_parallel, dims, said, model
            )
            parts = pipeline_parallel._generate_llm_fqn_per_model_part(
                count, layers, *ends
            )
        if row["pp"] > 1:
            stages = [sum(n.startswith("layers.") for n in p) for p in parts]
            demand(stages, row["stages"], "layers of each stage")
            local = found.training.local_batch_size
            each = said.pipeline_parallel_microbatch_size
            demand(local // each, row["microbatches"], "microbatches")

    return read


def _pipeline(module: Any, dims: Any, said: Any, model: Any) -> Any:
    """(Stages, layers, weights of both ends) as its pipelines are cut."""
    count, layers, first, last = module._get_pipeline_metadata(
        dims, said, model
    )
    return count, layers, (first, last)


def torchtitan_toml(folder: str) -> Reader:
    """ConfigManager of 0.2, ParallelDims, and the flavors of its models."""
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed.parallel_dims import ParallelDims

    def read(row: Row) -> None:
        with file(row["text"], ".toml") as path:
            found = ConfigManager().parse_args(["--job.config_file", path])
        _dims(ParallelDims, found.parallelism, row)
        _recomputed(found.activation_checkpoint, row)
        name = f"torchtitan.models.{found.model.name}"
        spec = importlib.import_module(name).get_train_spec()
        layers = spec.model_args[found.model.flavor].n_layers
        demand(layers, row["layers"], "layers")

    return read


TITAN_LACKS = (
    *("triton", "torchdata", "datasets", "torchao", "tensorboard", "wandb"),
    *("google", "torch_checkpointing"),
)
"""Modules that torchtitan imports and its configuration does not need."""


def _dims(kind: Any, said: Any, row: Row) -> Any:
    """Its degrees, which must make up the ranks."""
    names = {
        "dp_replicate": "data_parallel_replicate_degree",
        "dp_shard": "data_parallel_shard_degree",
        "cp": "context_parallel_degree",
        "tp": "tensor_parallel_degree",
        "pp": "pipeline_parallel_degree",
        "ep": "expert_parallel_degree",
        "etp": "expert_tensor_parallel_degree",
        "spmd_backend": "spmd_backend",
    }
    wanted = inspect.signature(kind).parameters
    found = {n: getattr(said, w) for n, w in names.items() if n in wanted}
    dims = kind(**found, world_size=row["chips"])
    for name in ("tp", "cp", "pp", "ep"):
        demand(getattr(dims, name), row[name], name)
    demand(dims.dp_replicate * dims.dp_shard, row["dp"], "dp")
    if row["zero"]:
        demand(dims.dp_replicate, row["dp_replicate"], "copies")
    with ranks(row["chips"]):
        for name, axis in {
            "tp": "tp",
            "cp": "cp",
            "batch": "dp",
            "pp": "pp",
            "ep": "ep",
        }.items():
            demand_group(dims.get_optional_mesh(name), row, axis)
    return dims


def _recomputed(said: Any, row: Row) -> None:
    """torchtitan's policy of recomputation, where the plan has one of its words: a mode to 0.2, a
    configuration of a class by itself, or none, from 0.3 on.
    """
    policies = {"NoneType": "none", "FullAC.Config": "full"}
    kind = type(said).__qualname__
    mode = getattr(said, "mode", policies.get(kind, "selective"))
    full = row["recompute"] in ("none", "full")
    demand(mode, row["recompute"] if full else "selective", "recomputed")


def deepspeed(folder: str) -> Reader:
    """DeepSpeedConfig, told how many replicas there are."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    without("triton")
    from deepspeed.runtime import config  # type: ignore[import-not-found]

    config.dist.get_rank = lambda *a: 0

    def read(row: Row) -> None:
        ranks = types.SimpleNamespace(
            get_data_parallel_world_size=lambda: row["dp"]
        )
        found = config.DeepSpeedConfig(json.loads(row["text"]), mpu=ranks)
        demand(found.train_batch_size, row["batch"], "batch")
        each = found.train_micro_batch_size_per_gpu
        demand(each, row["microbatch"], "microbatch")
        demand(
            found.gradient_accumulation_steps,
            row["microbatches"],
            "microbatches",
        )
        demand(found.zero_optimization_stage, row["zero"], "stage")

    return read


def accelerate(folder: str) -> Reader:
    """The file through `accelerate launch`, then the plugins that it sets up in each rank."""
    from accelerate import utils  # type: ignore[import-not-found]
    from accelerate.commands import launch  # type: ignore[import-not-found]
    from accelerate.parallelism_config import (  # type: ignore[import-not-found]
        ParallelismConfig,
    )
    from accelerate.utils.launch import (  # type: ignore[import-not-found]
        prepare_multi_gpu_env,
    )

    sys.modules[prepare_multi_gpu_env.__module__].is_fp8_available = lambda: (
        True
    )  # type: ignore[attr-defined]

    def read(row: Row) -> None:
        for name in [n for n in os.environ if n.startswith(LAUNCHED)]:
            del os.environ[name]
        with file(row["text"], ".yaml") as path:
            given = ["--config_file", path, "--machine_rank", "0", "train.py"]
            args = launch.launch_command_parser().parse_args(given)
            args, _, _ = launch._validate_launch_command(args)
        told = prepare_multi_gpu_env(args)
        os.environ |= {name: str(value) for name, value in told.items()}
        if told.get("ACCELERATE_USE_FSDP") == "true":
            plugin = utils.FullyShardedDataParallelPlugin()
            demand(_units(plugin), 4, "layers that are units of FSDP, of 4")
            demand(
                bool(plugin.reshard_after_forward), row["zero"] == 3, "ZeRO-3"
            )
            demand(
                bool(plugin.activation_checkpointing),
                row["recompute"] == "full",
                "recomputed layers",
            )
        if told.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true":
            config = ParallelismConfig()
            demand(config.total_size, row["chips"], "ranks")
            demand(
                config.dp_replicate_size,
                row["dp_replicate"] if row["zero"] else row["dp"],
                "copies",
            )
            with ranks(row["chips"]):
                mesh = config.build_device_mesh("cpu")
                for axis in ("tp", "cp", "dp"):
                    part = mesh[axis] if row[axis] > 1 else None
                    demand_group(part, row, axis)

    return read


def _module(path: Path) -> Any:
    """A file of Python by itself, without its package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def _units(plugin: Any) -> int:
    """How many layers of a Llama of four accelerate makes units of FSDP2."""
    import torch
    from accelerate.utils.fsdp_utils import (  # type: ignore[import-not-found]
        fsdp2_prepare_auto_wrap_policy,
    )
    from transformers import (  # type: ignore[import-not-found]
        LlamaConfig,
        LlamaForCausalLM,
    )

    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 128}
    heads = {"num_attention_heads": 4, "num_hidden_layers": 4}
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**sizes, **heads))
    plugin.set_auto_wrap_policy(model)
    policy = fsdp2_prepare_auto_wrap_policy(plugin, model)
    return sum(bool(policy(m)) for m in model.model.layers) if policy else 0


def axolotl(folder: str) -> Reader:
    """The schema of the file, and the same with what the GPUs can do; no key it does not know."""
    import yaml
    from axolotl.utils.schemas import config  # type: ignore[import-not-found]

    sys.modules["ring_flash_attn"] = Empty("ring_flash_attn")  # it needs CUDA
    plugin = _module(
        Path(folder) / "axolotl/integrations/expert_parallel/args.py"
    )
    config.is_fp8_available = lambda: True
    able = {"bf16": True, "fp8": True, "compute_capability": "sm_90"}
    known = set(config.AxolotlConfigWCapabilities.model_fields)
    added = set(plugin.ExpertParallelArgs.model_fields)

    def read(row: Row) -> None:
        keys = yaml.safe_load(row["text"])
        with_experts = bool(keys.get("plugins"))
        names = known | (added if with_experts else set())
        demand(sorted(set(keys) - names), [], "unknown keys")
        config.AxolotlInputConfig(**keys)
        if with_experts:
            plugin.ExpertParallelArgs(
                **{k: v for k, v in keys.items() if k in added}
            )
        axes = ("expert_parallel_size", "dp_shard_size", "dp_replicate_size")
        axes += ("tensor_parallel_size", "context_parallel_size")
        ranks = 1
        for axis in axes:
            ranks *= keys.get(axis) or 1
        demand(ranks, row["chips"] if row["zero"] else 1, "ranks of its mesh")
        parts = keys["gradient_accumulation_steps"]
        demand(parts, row["microbatches"], "microbatches")
        demand(
            bool(keys.get("gradient_checkpointing")),
            row["recompute"] == "full",
            "recomputed layers",
        )
        for key, axis in (
            ("tensor_parallel_size", "tp"),
            ("context_parallel_size", "cp"),
            ("expert_parallel_size", "ep"),
            ("micro_batch_size", "microbatch"),
        ):
            demand(keys.get(key) or 1, row[axis], axis)
        gpus = {**able, "n_gpu": row["chips"], "n_node": row["chips"] // 8}
        versions = {"torch_version": "2.9.0"}
        config.AxolotlConfigWCapabilities(
            **keys, capabilities=gpus, env_capabilities=versions
        )

    return read


def maxtext(folder: str) -> Reader:
    """pyconfig over base.yml and the model's file, compiled for a slice of so many chips."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    without("orbax", "pathwaysutils", "flax", "tensorboardX", "google")
    from maxtext.configs import pyconfig  # type: ignore[import-not-found]

    def read(row: Row) -> None:
        slices = {
            "compile_topology": TOPOLOGY[row["chips"]],
            "compile_topology_num_slices": 1,
            "skip_jax_distributed_system": True,
            "run_name": "x",
        }
        more = [f"{name}={value}" for name, value in slices.items()]
        with file(row["text"], ".yml") as path:
            found = pyconfig._initialize_pydantic(["x.py", path, *more])
        demand(found.global_batch_size_to_train_on, row["batch"], "batch")
        policy = found.remat_policy or "full"  # it is none of jax.checkpoint's
        if row["recompute"] in ("none", "full"):
            demand(policy, row["recompute"], "remat_policy")
        for name, degree in (
            ("context", "cp"),
            ("pipeline", "pp"),
            ("expert", "ep"),
        ):
            axis = [
                getattr(found, f"{net}_{name}_parallelism")
                for net in ("ici", "dcn")
            ]
            demand(axis[0] * axis[1], row[degree], name)
        _maxtext_mesh(found, row)
        if row["pp"] > 1:
            count = found.num_pipeline_microbatches
            demand(count, row["microbatches"], "microbatches")
            layers = found.num_layers_per_pipeline_stage
            demand({layers}, {*row["stages"]}, "layers of each stage")

    return read


def _maxtext_mesh(found: Any, row: Row) -> None:
    """Replicas and shards make up dp, tensor axes tp; -1 is what is left of the slice."""
    sizes = {}
    for axis in found.mesh_axes:
        name = "pipeline" if axis == "stage" else axis
        pair = [
            getattr(found, f"{net}_{name}_parallelism", 1)
            for net in ("ici", "dcn")
        ]
        sizes[axis] = pair[0] * pair[1]
    rest = row["chips"]
    for size in sizes.values():
        rest //= size if size > 0 else 1
    sizes = {axis: size if size > 0 else rest for axis, size in sizes.items()}
    tensor = [n for axis, n in sizes.items() if axis.startswith("tensor")]
    replicas = sizes.get("data", 1) * sizes.get("fsdp", 1)
    demand(math.prod(tensor), row["tp"], "tensor")
    demand(replicas * sizes.get("expert", 1), row["dp"], "data and fsdp")
    demand(math.prod(sizes.values()), row["chips"], "ranks")


def bridge(folder: str) -> Reader:
    """Overrides through Hydra's grammar; recipe and keys by name, in the sources of the wheels.

    The recipes themselves ask a hub for the model's configuration, and are not run.
    """
    from hydra.core.override_parser.overrides_parser import (  # type: ignore[import-not-found]
        OverridesParser,
    )

    names, keys = _declared(Path(folder))
    parser = OverridesParser.create()

    def read(row: Row) -> None:
        given = words(row["text"], "run_recipe.py")
        recipe = given[given.index("--recipe") + 1]
        demand(recipe in names, True, "recipe")
        plain = [w for w in given if "=" in w and not w.startswith("--")]
        for override in parser.parse_overrides(plain):
            section, _, key = override.key_or_group.rpartition(".")
            demand(key in keys, True, "keys by name")
            value = override.value()
            if isinstance(value, dict):
                fields = {*map(str, value)} - {"_target_"}
                demand(fields <= keys, True, "fields by name")
            # mixed_precision sets it in the other sections (runtime_config_update)
            if key == "grad_reduce_in_fp32":
                demand(section, "mixed_precision", "numbers of gradients")
            if key in MEGATRON_SIZES:
                demand(value, row[MEGATRON_SIZES[key]], key)

    return read


def _declared(folder: Path) -> tuple[set[str], set[str]]:
    """(Recipes, fields of dataclasses) in the sources under a folder."""
    names: set[str] = set()
    keys: set[str] = set()
    for path in folder.glob("megatron/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if "recipes" in path.parts and isinstance(node, ast.FunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.ImportFrom):
                names |= {a.asname or a.name for a in node.names}
            elif isinstance(node, ast.AnnAssign) and isinstance(
                node.target, ast.Name
            ):
                keys.add(node.target.id)
    return names, keys


def titan(reader: Callable[[str], Reader]) -> Callable[[str], Reader]:
    """With what torchtitan imports beside its configuration left out."""

    def of(folder: str) -> Reader:
        without(*TITAN_LACKS)
        return reader(folder)

    return of


READERS: dict[str, Callable[[str], Reader]] = {
    "megatron": megatron,
    "megatron-bridge": bridge,
    "torchtitan": titan(torchtitan_flags),
    "torchtitan-toml": titan(torchtitan_toml),
    "deepspeed": deepspeed,
    "accelerate": accelerate,
    "axolotl": axolotl,
    "maxtext": maxtext,
}


def refused(read: Reader, row: Row) -> str:
    """Empty, or what the tool says, on one line."""
    said = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            read(row)
    except (Exception, SystemExit) as error:
        more = said.getvalue() if isinstance(error, SystemExit) else ""
        return " ".join(f"{type(error).__name__}: {error} {more}".split())[
            :500
        ]
    return ""


def main() -> None:
    name, rows, folder = sys.argv[1:]
    sys.path[0] = folder
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if name == "arguments":
        lines = (
            f"  {json.dumps(k)}: {json.dumps(v)}"
            for k, v in megatron_arguments(folder).items()
        )
        Path(rows).write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
        return
    read = READERS[name](folder)
    plans = json.loads(Path(rows).read_text("utf-8"))
    why = {row["plan"]: refused(read, row) for row in plans}
    bad = {plan: text for plan, text in why.items() if text}
    found = {"accepted": len(plans) - len(bad), "refused": bad}
    print(json.dumps({**found, "compared": COMPARED}))


if __name__ == "__main__":
    main()
