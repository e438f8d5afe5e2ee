"""Megatron-Bridge and NeMo: a configuration in YAML, or a recipe's overrides on a command line.

The keys are Megatron's, in sections (model.tensor_model_parallel_size); where a section does not
matter to what a key means it is left aside. The recipe's name says the model, the number and kind
of GPUs, and the precision: llama3_70b_pretrain_64gpu_h100_bf16_config.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ... import catalog
from ...describe.job import Job
from ...errors import BadInput
from . import launch, megatron_args, shell
from .edit import VALUE, Spelling
from .keys import Keys
from .model_megatron import NO_MODEL
from .nemo import Nemo
from .reading import FileKeys, decided_elsewhere
from .shared import model_named, name_of, value_in_words
from .table import get
from .tool import Tool

NAME = "megatron-bridge"
RECIPE = re.compile(
    r"(?P<model>.+?)_(?P<task>pretrain|sft|lora|peft|finetune)(?:_(?P<chips>\d+)gpu_(?P<chip>[a-z0-9]+)"
    r"_(?P<precision>[a-z0-9]+))?(?:_.*)?_config"
)
PRECISIONS = {
    "bf16": "bf16_mixed",
    "fp8cs": "bf16_with_fp8_current_scaling_mixed",
    "fp8mx": "bf16_with_mxfp8_mixed",
    "fp8sc": "bf16_with_fp8_subchannel_scaling_mixed",
    "fp8ds": "bf16_with_fp8_delayed_scaling_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
"""Word in a recipe's name -> mixed precision (megatron/bridge/training/mixed_precision.py)."""
SCALINGS = {
    "tensorwise": "fp8cs",
    "mxfp8": "fp8mx",
    "blockwise": "fp8sc",
    "delayed": "fp8ds",
}


SIXTEEN_BITS = {"_target_": "torch.bfloat16", "_call_": False}
CLASSES: Mapping[str, Mapping[str, Any]] = {
    "mixed_precision": {
        "_target_": "megatron.bridge.training.mixed_precision.MixedPrecisionConfig",
        "params_dtype": SIXTEEN_BITS,
        "pipeline_dtype": SIXTEEN_BITS,
    },
    "comm_overlap": {
        "_target_": "megatron.bridge.training.comm_overlap.CommOverlapConfig",
        "tp_comm_overlap": False,
    },
}
"""Sections that a recipe may have none of, or a name for -> how a configuration says their class.
Both set fields of other sections when a run starts (training/config.py, runtime_config_update)."""
GRADIENTS = "ddp.grad_reduce_in_fp32"


RECIPES_SAY = (
    *("layout.tp", "layout.pp", "layout.cp", "layout.ep"),
    *("layout.microbatch", "layout.recompute", "job.seq"),
)
"""Fields that each recipe sets in a way of its own: nothing stands for them."""
DISTILLED = ("teacher", "kd_config")
"""Sections of distillation (training/post_training/distillation.py)."""
BARE = re.compile(r"[\w.\-/]+")
"""Texts that need no quotes in an override."""


CHIPS = {"trainer.devices": "trainer.num_nodes", "devices": "num_nodes"}
TASKS_OF_ALL = ("pretrain", "sft", "finetune")


NEMO_1 = Nemo("nemo")
"""Before it; its files have keys of these names too."""


def _unquoted(text: str) -> str | None:
    """A value of Hydra's without its quotes; None for null."""
    if text == "null":
        return None
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text


def _settings(name: str, value: str) -> dict[str, Any]:
    """The setting of an override, without its section; of a table in braces, all of its fields."""
    if value.startswith("{"):
        fields = re.findall(r"\b([a-z]\w*):([\w.]+)", value)
        return {key: _unquoted(word) for key, word in fields}
    key = name if name == GRADIENTS else name.rpartition(".")[2]
    return {key: _unquoted(value)}


def _with_recipe(keys: dict[str, Any], chips: int | None) -> FileKeys:
    """What the recipe's name says is in the keys too, where they do not say it themselves."""
    match = RECIPE.fullmatch(str(keys.get("recipe", "")))
    if match and match["chips"]:
        chips = chips or int(match["chips"])
        if (
            named := PRECISIONS.get(match["precision"])
        ) and "mixed_precision" not in keys:
            # their recipes for speed reduce gradients in 16 bits (perf_recipes, _perf_precision)
            keys = {
                "grad_reduce_in_fp32": False,
                **keys,
                "mixed_precision": named,
            }
    if NO_MODEL in keys:
        return FileKeys(keys, chips)
    if recipe := published(str(keys.get("recipe", ""))):
        return FileKeys({**recipe, **keys}, chips, (PUBLISHED,))
    paths = [p for p in RECIPES_SAY if p != "layout.ep" or not _dense(keys)]
    paths += ["layout.zero"] * ("fsdp" in str(keys.get("recipe", "")))
    theirs = decided_elsewhere(get(NAME), paths, keys, "recipe")
    return FileKeys(keys, chips, (SAVED,) * bool(theirs), elsewhere=theirs)


def published(name: str) -> dict[str, Any]:
    """The settings of a recipe for speed, where the catalogue has all of them; {} of others."""
    from ...search import recipes  # a search takes longer to import

    own = f" {name.removesuffix('_config')}"
    row = next((r for r in recipes() if r.source.endswith(own)), None)
    if row is None or not row.v or own == " ":
        return {}
    how, _, layers = row.recompute.partition(":")
    again: dict[str, Any] = {"recompute_granularity": "none"}
    if how == "full":
        again = {"recompute_granularity": how, "recompute_method": "block"}
        again["recompute_num_layers"] = layers or 1
    elif how != "none":
        again = {"recompute_modules": how.split("+")}
    away = row.offload.removeprefix("activations:")
    return {
        "tensor_model_parallel_size": row.tp,
        "pipeline_model_parallel_size": row.pp,
        "context_parallel_size": row.cp,
        "expert_model_parallel_size": row.ep,
        "expert_tensor_parallel_size": row.etp,
        "virtual_pipeline_model_parallel_size": row.v,
        "micro_batch_size": row.microbatch,
        "sequence_parallel": row.tp > 1,  # in every one of them
        "seq_length": row.seq,
        **dict(get(NAME).cells["layout.zero"].says)[row.zero],
        **again,
        **({"cpu_offloading_num_layers": away} if away.isdecimal() else {}),
    }


PUBLISHED = "what the file does not say is the recipe's, as Megatron-Bridge 067f987 has it"
SAVED = (
    "what the file does not say is its recipe's: run_config.yaml, which a run saves beside its"
    " checkpoints, says all"
)


def _dense(keys: Mapping[str, Any]) -> bool:
    """The recipe's model is one of the catalogue, without experts."""
    match = RECIPE.fullmatch(str(keys.get("recipe", "")))
    name = get(NAME).models.get(match["model"]) if match else None
    return name is not None and catalog.model(name).moe is None


def recipe_model(k: Keys) -> str | None:
    """The catalogue's name of a recipe's model; what it runs on goes beside it."""
    name = str(k.get("recipe", ""))
    if not name:
        if k.get("model") or k.get("model_name"):
            word = str(k.get("model") or k.get("model_name"))
            return _known(word, k)
        return None
    match = RECIPE.fullmatch(name)
    if not match:
        raise BadInput(
            f"recipe {name[:80]!r} is not named like llama3_70b_pretrain_64gpu_h100_bf16_config"
        )
    if match["task"] not in TASKS_OF_ALL:
        k.leave(
            "recipe",
            "only adapters are trained: the prediction trains all weights",
        )
    if match["chip"] and catalog.has("chips", match["chip"]):
        k.tables["on"] = match["chip"]  # type: ignore[assignment]
    return _known(match["model"], k)


def _known(name: str, k: Keys) -> str | None:
    """Our name of their model."""
    word = name.lower().replace("-", "_").replace(".", "").strip("_")
    return model_named(k, word if word in get(NAME).models else name, NAME)


# ---------------------------------------------------------------- writing


def write_recipe(job: Job, out: dict[str, Any]) -> None:
    """The library's recipe of the model."""
    out["recipe"] = f"{name_of(job, NAME, 'recipe')}_pretrain_config"


def write_mixed_precision(job: Job, out: dict[str, Any]) -> None:
    """A recipe of mixed precision by its name; its fields, where the plan has gradients in 16 bits,
    which no recipe has and no key beside it sets (training/config.py, runtime_config_update), or
    all layers in FP8, where the recipe has the first and the last in 16 bits.
    """
    compute, _, half = job.precision.name.partition("-")
    if compute not in ("bf16", "fp8", "fp4"):
        raise BadInput(
            "Megatron-Bridge has no recipe of mixed precision for"
            f" {value_in_words('job.precision', job.precision)}"
        )
    scaling = job.software.float8 or (
        job.profile.float8 if job.profile else "tensorwise"
    )
    word = {"bf16": "bf16", "fp4": "nvfp4"}.get(
        compute, SCALINGS.get(scaling, "")
    )
    if not word:
        raise BadInput(
            f"Megatron-Bridge has no recipe of mixed precision with {scaling} scaling"
        )
    recipe = PRECISIONS[word]
    if not half and word != SCALINGS["tensorwise"]:
        out["mixed_precision"] = recipe
        return
    if compute == "fp4":
        raise BadInput(
            "Megatron-Bridge 0.3.1 has no field of weights gathered in 4 bits, only a recipe with"
            " gradients in fp32: gradients fp32"
        )
    out |= {"bf16": True, "grad_reduce_in_fp32": not half}
    out |= get(NAME).words["mixed_precision"][recipe]


def section_of(name: str) -> str:
    """A key behind the section of the configuration that holds it."""
    sections = get(NAME).sections.items()
    path = next((s for s, names in sections if name in names), "model")
    return f"{path}.{name}".lstrip(".")


def usual_layout_keys(job: Job) -> dict[str, Any]:
    """What a plan leaves alone: a recipe has a layout of its own, which would stay otherwise."""
    experts = {
        "expert_model_parallel_size": 1,
        "expert_tensor_parallel_size": 1,
    }
    return {**get(NAME).fixed, **(experts if job.model.moe else {})}


def _hydra(value: Any) -> str:
    """A value in Hydra's grammar of overrides, which takes brackets in bare texts for calls."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_hydra, value)) + "]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{k}:{_hydra(v)}' for k, v in value.items())}}}"
    text = str(value)
    return text if BARE.fullmatch(text) else json.dumps(text)


def stands(key: str, value: Any) -> str:
    """A pattern of an override, quoted or not."""
    return rf"(?<!\S)(['\"]?[\w.+~]*\b{re.escape(key)})=(?:{VALUE})?['\"]?"


def again(key: str, value: Any, spelling: str) -> str:
    """The override with another value."""
    path = spelling.lstrip("'\"") or section_of(key)
    return shlex.quote(f"{path}={_hydra(value)}")


class MegatronBridge(Tool):
    """A recipe of Megatron-Bridge or NeMo 2, and what changes it."""

    def mine(self, text: str) -> bool:
        """A command line that starts a recipe."""
        return (
            "run_recipe" in text
            or re.search(r"\bmodel\.\w*parallel_size=", text) is not None
        )

    def mine_tree(self, keys: Mapping[str, Any]) -> bool:
        """A ConfigContainer, NeMo 2's configuration, or a recipe with changes."""
        if NEMO_1.mine_tree(keys) or megatron_args.TOOL.mine_tree(keys):
            return False
        last = {key.rpartition(".")[2] for key in keys}
        return "tensor_model_parallel_size" in last or isinstance(
            keys.get("recipe"), str
        )

    def said(self, text: str, where: str) -> FileKeys:
        """The options and overrides of the command that starts a recipe."""
        script = shell.read_script(text)
        words = launch.command_with_most_flags(
            script,
            lambda w: any(self.mine(word) for word in w) or "--recipe" in w,
        )
        if words is None:
            raise BadInput(f"{where} starts no recipe of Megatron-Bridge")
        start = launch.program_at(words, -1)
        plain = [
            w for w in words[start + 1 :] if not re.match(r"[\w.+~]+=", w)
        ]
        given, short = launch.arguments(plain), get(NAME).older
        keys = {short.get(k, k): v for k, v in given.items()}
        for word in words[start + 1 :]:
            name, equals, value = word.lstrip("+~").partition("=")
            if equals and re.fullmatch(r"[\w.]+", name):
                keys |= _settings(name, value)
        return _with_recipe(keys, launch.ranks_started(words, script))

    def of_tree(self, keys: Mapping[str, Any], where: str) -> FileKeys:
        """The keys of a file of a recipe; of two keys with one name that of the model counts."""
        settings: dict[str, Any] = {}
        for key, value in keys.items():
            section, _, name = key.rpartition(".")
            name = key if key == GRADIENTS else name
            if {*DISTILLED} & {*section.split(".")}:
                raise BadInput(
                    f"Megatron-Bridge: {key}: distillation runs a second model,"
                    " which is not counted"
                )
            if name not in settings or section.endswith("model"):
                settings[name] = value
        chips = None
        for per_node, nodes in CHIPS.items():
            if str(keys.get(per_node, "")).isdecimal():
                chips = int(keys[per_node]) * int(keys.get(nodes) or 1)
        return _with_recipe(settings, chips)

    def render(self, out: dict[str, Any], job: Job, at: launch.Place) -> str:
        """The command that starts the recipe with these overrides."""
        format = get(NAME)
        recipe = out.pop("recipe")
        lines = [f"--recipe {recipe} --mode pretrain --dataset mock"]
        paths = {
            section_of(name): value
            for name, value in {**usual_layout_keys(job), **out}.items()
        }
        for section, known in CLASSES.items():
            head = f"{section}."
            own = [path for path in paths if path.startswith(head)]
            said = {path.removeprefix(head): paths.pop(path) for path in own}
            if said:  # a recipe's own would be merged with it
                lines.append(f"{section}=null")
                paths[section] = {**known, **said}
        lines += [shlex.quote(f"{p}={_hydra(v)}") for p, v in paths.items()]
        return launch.script(at, format, format.program, [*lines, launch.REST])

    def words(self, out: dict[str, Any]) -> dict[str, Any]:
        """The overrides as a script says them."""
        lines = [shlex.quote(f"{k}={_hydra(v)}") for k, v in out.items()]
        return self.said(" ".join(["run_recipe.py", *lines]), "").keys


TOOL = MegatronBridge("megatron-bridge")
SPELLING = Spelling(TOOL.said, stands, again)
"""How overrides stand in a script."""
