"""Megatron-LM's command line: in a shell script, as plain arguments, or the same names in YAML."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...describe.job import Job
from ...errors import BadInput
from . import launch, shell
from .edit import SPACE, VALUE, Spelling
from .reading import FileKeys
from .table import get
from .tool import Tool, demand_training, no_training, program_path

NAME = "megatron"
KNOWN = (
    "--tensor-model-parallel-size",
    "--num-layers",
    "--micro-batch-size",
    "--hidden-size",
)
"""A command with one of these starts Megatron."""
IN_YAML = re.compile(r"MODEL_ARGS\.--|(?:system|model|data)\.(?:\w+\.)*")
"""Where an argument stands in tests/functional_tests of Megatron-LM, and in files of FlagScale,
whose sections mean nothing (flagscale/runner/utils.py, flatten_dict_to_args)."""
WORDED = (
    *("recompute_granularity", "recompute_method", "recompute_modules"),
    *("activations_checkpoint_granularity", "activations_checkpoint_method"),
    *("fp4_format", "fp8_format", "megatron_fsdp_main_grads_dtype"),
    *("data_parallel_sharding_strategy", "pipeline_model_parallel_layout"),
    *("cp_comm_type", "normalization", "position_embedding_type"),
    *("softmax_type", "window_size", "window_attn_skip_freq"),
)
"""Arguments whose word decides the model, the layout or the numbers: one without (`"$WORD"` of a
name that is set elsewhere) is asked for."""
GENERATES = ("inference_", "num_tokens_to_generate", "output_path")
"""Arguments of programs that write text."""


def has_flags(words: Sequence[str]) -> bool:
    """The words have Megatron's flags among them."""
    return any(w.partition("=")[0].replace("_", "-") in KNOWN for w in words)


def trains(words: Sequence[str]) -> bool:
    """The words start a program with Megatron's flags which trains a decoder."""
    named = bool(program_path(words))
    return named and has_flags(words) and not no_training(get(NAME), words)


def environment(keys: dict[str, Any], job: Job) -> dict[str, str]:
    """What the script must set: up to Hopper kernels of tp and cp must be queued in order, which
    it demands of the environment, and Megatron-FSDP must not be (arguments.py: validate_args).
    """
    cut = bool((job.layout.tp > 1) | (job.layout.cp > 1))
    ordered = cut and "use_megatron_fsdp" not in keys
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if ordered else {}


def argument_words(out: dict[str, Any]) -> list[list[str]]:
    """Each argument with its value, as words of a shell."""
    words = []
    for name, value in out.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append([flag])
        elif isinstance(value, (list, tuple)):
            words.append([flag, *(shlex.quote(str(v)) for v in value)])
        else:
            words.append([flag, shlex.quote(str(value))])
    return words


class MegatronArguments(Tool):
    """Megatron-LM's command line."""

    beside: ClassVar[Mapping[Any, tuple[str, ...]]] = {
        ("overlap_param_gather", True): (
            "use_distributed_optimizer",
            "use_megatron_fsdp",
        ),
        ("ckpt_format", "fsdp_dtensor"): ("use_megatron_fsdp",),
    }
    """As its arguments.py demands (validate_args)."""

    def of_tree(self, keys: Mapping[str, Any], where: str) -> FileKeys:
        """The arguments, of a test or plain.  Raises BadInput for a test that writes text."""
        if not self.mine_tree(keys):
            return FileKeys(dict(keys))
        said = {
            key[place.end() :].replace("-", "_"): value
            for key, value in keys.items()
            if (place := IN_YAML.match(key))
        }
        if writes := [key for key in said if key.startswith(GENERATES)]:
            raise BadInput(
                f"{where[:80]} writes text ({writes[0]}): only training is read"
            )
        on = {k: v for k, v in said.items() if v is not False}
        return FileKeys(on)

    def mine(self, text: str) -> bool:
        """The text starts Megatron."""
        return any(
            flag in text or flag.replace("-", "_") in text for flag in KNOWN
        )

    def said(self, text: str, where: str) -> FileKeys:
        """The arguments of the command, or of the names a script sets where it starts none."""
        script = shell.read_script(text)
        notes: list[str] = []
        words = launch.command_with_most_flags(
            script, trains
        ) or launch.command_with_most_flags(script, has_flags)
        if words is None:
            named = [
                (n, shell.readable(launch.command_pieces(w)))
                for n, w in script.names.items()
            ]
            commands = [(n, w) for n, w in named if has_flags(w)]
            if not commands:
                raise BadInput(
                    f"{where} starts nothing with Megatron's arguments"
                )
            name, words = max(commands, key=lambda nw: len(nw[1]))
            notes.append(
                f"no command with Megatron's arguments: those of {name} are read"
            )
        demand_training(get(NAME), words, where)
        keys = {k: v or True for k, v in launch.arguments(words).items()}
        wordless = {key for key in WORDED if keys.get(key) is True}
        return FileKeys(
            keys,
            launch.ranks_started(words, script),
            tuple(notes),
            frozenset(script.doubtful | wordless),
        )

    def render(self, out: dict[str, Any], job: Job, at: launch.Place) -> str:
        """A script that starts Megatron-LM with these arguments."""
        lines = [" ".join(words) for words in argument_words(out)]
        return launch.script(
            at,
            get(NAME),
            get(NAME).program,
            [*lines, launch.REST],
            settings=environment(out, job),
        )

    def words(self, out: dict[str, Any]) -> dict[str, Any]:
        """The arguments as a script says them: texts, and true for a name alone."""
        return launch.arguments(
            [
                word
                for line in argument_words(out)
                for word in shlex.split(" ".join(line))
            ]
        )


TOOL = MegatronArguments("megatron")


def _argument(key: str, old: Any) -> str:
    """A pattern of an argument with its value."""
    name = re.escape(key).replace("_", "[-_]")
    most = 0 if old is True else len(str(old).split())
    value = rf"(?:=|{SPACE})(?!--?[A-Za-z]){VALUE}"
    return rf"(?<![\w$-])(--?{name})(?![\w-])(?:{value}){{0,{most}}}"


def _again(key: str, value: Any, spelling: str) -> str:
    """The argument with another value."""
    words = [] if value is True else shlex.split(str(value))
    name = spelling or "--" + key.replace("_", "-")
    return " ".join((name, *map(shlex.quote, words)))


SPELLING = Spelling(TOOL.said, _argument, _again)
"""How arguments stand in a script: --name value."""
