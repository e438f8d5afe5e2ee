"""Classes of the installed transformers, counted by their trace: against their own parameters and
PyTorch's counter, and with a network, code of others and weights forbidden. Takes minutes.

pip install -e '.[hf]' && pytest -m hf tests/trace                (all families: benchmarks/traced.py)
"""

from __future__ import annotations

import copy
import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

if importlib.util.find_spec("transformers") is None:
    pytest.skip("needs meshwright[hf]", allow_module_level=True)

from meshwright import Job, parameters, predict
from meshwright.formats.hf import load_hf, read_hf
from meshwright.formats.hf_whole import tie_rules
from meshwright.trace import build, hf
from refusals import refusal

pytestmark = [
    pytest.mark.hf,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore"),
]

SMALL = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1000,
}
ASK_NUMBERS = {"jetmoe": {**SMALL, "num_local_experts": 4, "kv_channels": 32}}
"""Families whose code does not run without numbers -> settings of a model small enough for one."""
LLAMA = {"model_type": "llama", **SMALL}


def benchmark() -> ModuleType:
    """benchmarks/traced.py, which is no package."""
    file = Path(__file__).parents[2] / "benchmarks" / "traced.py"
    spec = importlib.util.spec_from_file_location("traced", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "family",
    [
        "llama", "gpt2", "qwen3_moe", "deepseek_v3", "gpt_oss", "gemma3",
        "mamba2", "bart", "longcat_flash", "jetmoe", "prophetnet", "xlm", "xlnet",
    ],
)  # fmt: skip
def test_settings_drawn_at_random_are_counted_as_pytorch_counts(
    family: str,
) -> None:
    """Two draws a family; what is refused or differs fails."""
    tool = benchmark()
    rows = list(tool.draws(family, 2, runs=family not in ASK_NUMBERS))
    assert rows
    assert [tool.verdict(row) for row in rows] == ["exact"] * len(rows)


@pytest.mark.parametrize("family", [*ASK_NUMBERS])
def test_code_that_asks_for_numbers_is_held_against_a_run_on_them(
    family: str,
) -> None:
    tool = benchmark()
    row = tool.row(tool.defaults(family, ASK_NUMBERS[family]))
    assert "uncounted" in row and row["tokens"] == tool.SHORT
    assert tool.verdict(row) == "exact"


def test_the_table_of_tokens_is_the_one_that_the_logits_share() -> None:
    """gemma4 looks up a second table, of parts for each layer, which may have more rows."""
    config = benchmark().defaults(
        "gemma4",
        {"num_hidden_layers": 2, "vocab_size_per_layer_input": 524288},
    )
    made = build.build_model(config)
    assert made.vocab == 262144 and made.tied_embeddings


FORBIDS = """
import sys

def forbidden(event, args):
    if event.startswith("socket.") and event != "socket.__new__":
        raise RuntimeError("FORBIDDEN network")
    if event == "open" and str(args[0]).endswith(
        (".safetensors", ".bin", ".pt", ".pth", ".gguf", "modeling_evil.py")
    ):
        raise RuntimeError(f"FORBIDDEN file {args[0]}")
    if event == "import" and "evil" in str(args[0]):
        raise RuntimeError("FORBIDDEN code")

sys.addaudithook(forbidden)
"""
"""What a process that may not ask a network, read weights or run code of a checkpoint begins with."""


@pytest.fixture
def forbidding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint with weights and code beside its file; the tracing process may touch none."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(FORBIDS, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"\x00" * 64)
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w').close()\n"
    (folder / "modeling_evil.py").write_text(code, "utf-8")
    return folder


def test_no_network_no_code_of_others_no_weights(forbidding: Path) -> None:
    remote = {"AutoModelForCausalLM": "modeling_evil.Evil"}
    config = {**LLAMA, "auto_map": remote, "_name_or_path": str(forbidding)}
    (forbidding / "config.json").write_text(json.dumps(config), "utf-8")
    model = load_hf(forbidding, by_code=True)
    assert parameters(model) == parameters(read_hf(LLAMA))
    assert "it is not run" in " ".join(model.notes)
    unknown = {**config, "model_type": "evil"}
    (forbidding / "config.json").write_text(json.dumps(unknown), "utf-8")
    with refusal("which is not run"):
        load_hf(forbidding)
    assert not (forbidding.parent / "ran").exists()


@pytest.mark.parametrize(
    "attempt",
    [
        "import socket; socket.create_connection(('localhost', 1), 1)",
        "open('model.safetensors')",
        "import modeling_evil",
    ],
)
def test_what_is_forbidden_would_be_seen(
    forbidding: Path, attempt: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", attempt],
        env={"PYTHONPATH": str(forbidding.parent / "site")},
        cwd=forbidding,
        capture_output=True,
        text=True,
    )
    assert "FORBIDDEN" in done.stderr


def drawn(rng: random.Random) -> dict[str, Any]:
    """A file of Gemma 3 that contradicts itself: ties, layers, keys that no class takes."""
    inner: dict[str, Any] = {"model_type": "gemma3_text", **SMALL}
    made: dict[str, Any] = {"model_type": "gemma3", "text_config": inner}
    for table in (inner, made):
        if rng.random() < 0.8:
            table["tie_word_embeddings"] = rng.random() < 0.5
        if rng.random() < 0.5:
            table["num_experts_of_mine"] = 8
    return made


@pytest.mark.parametrize("seed", range(8))
def test_files_that_contradict_themselves(seed: int) -> None:
    """Ties are those that the class of the whole builds, and what is not taken is said."""
    import torch
    from transformers import AutoModelForImageTextToText, Gemma3Config

    config = drawn(random.Random(seed))
    model = build.build_model(config)
    own = {k: v for k, v in config.items() if k != "num_experts_of_mine"}
    with torch.device("meta"):
        whole = AutoModelForImageTextToText.from_config(Gemma3Config(**own))
    tied = (
        whole.get_input_embeddings().weight
        is whole.get_output_embeddings().weight
    )
    assert model.tied_embeddings == tied
    text = whole.model.language_model.parameters()
    matrix = 0 if tied else SMALL["vocab_size"] * SMALL["hidden_size"]
    assert parameters(model) == sum(p.numel() for p in text) + matrix
    said = " ".join(model.notes)
    inner = config["text_config"]
    assert ("num_experts_of_mine" in said) == ("num_experts_of_mine" in inner)
    ties = {t.get("tie_word_embeddings") for t in (config, inner)}
    assert ("tie_word_embeddings" in said) == (ties == {True, False})


@pytest.mark.parametrize("tied", [True, False])
def test_a_text_part_may_have_no_tie_of_its_own(tied: bool) -> None:
    """Qwen3-VL's says nothing of it."""
    inner = {**SMALL, "max_position_embeddings": 1024}
    config = {"model_type": "qwen3_vl", "text_config": inner}
    model = build.build_model({**config, "tie_word_embeddings": tied})
    assert model.tied_embeddings == tied


@pytest.mark.parametrize("outer", [None, True, False])
@pytest.mark.parametrize("inner", [None, True, False])
@pytest.mark.parametrize("kind", sorted(tie_rules()))
def test_ties_are_those_of_the_class(
    kind: str, inner: bool | None, outer: bool | None
) -> None:
    """By hand and by the trace: those of the whole class, for every family of such files."""
    import torch
    import transformers as tf

    of = tf.CONFIG_MAPPING[kind]
    key = "tie_word_embeddings"
    part = of().to_dict()["text_config"]
    text = {k: part[k] for k in ("model_type", "hidden_size") if k in part}
    text |= {"num_hidden_layers": 4}
    text |= {} if inner is None else {key: inner}
    config = {"model_type": kind, "text_config": text}
    config |= {"vocabulary_map": {}} if kind == "emu3" else {}
    config |= {} if outer is None else {key: outer}
    autos = (
        tf.AutoModelForMultimodalLM,
        tf.AutoModelForSeq2SeqLM,
        tf.AutoModelForPreTraining,
    )
    auto = next(a for a in autos if of in a._model_mapping.keys())  # noqa: SIM118
    try:
        with torch.device("meta"):
            whole = auto.from_config(of.from_dict(copy.deepcopy(config)))
    except (ImportError, KeyError, ValueError) as error:
        pytest.skip(f"its class does not build at its defaults: {error}"[:99])
    if whole.get_output_embeddings() is None:  # that of its language model
        whole = whole.language_model
    matrix = whole.get_output_embeddings().weight
    tied = matrix is whole.get_input_embeddings().weight
    assert read_hf(config).tied_embeddings == tied
    _, traced, _ = build.configured(copy.deepcopy(config))
    assert bool(getattr(traced, key, False)) == tied


def test_a_traced_file_is_predicted(tmp_path: Path) -> None:
    """Counted by its code and by its table: the same parameters, and steps that differ little."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA), "utf-8")
    steps = [
        predict(Job(load_hf(file, by_code=code), "8xh100-sxm", 64)).step_time_s
        for code in (False, True)
    ]
    assert steps[1] == pytest.approx(steps[0], rel=0.3)


def test_sizes_where_the_class_does_not_look_are_refused() -> None:
    """A file without the part for the language model would be built with the class's own sizes."""
    flat = {"model_type": "gemma3n", "num_hidden_layers": 4}
    with refusal("4 stands outside text_config"):
        build.configured(flat)
    given, text, _ = build.configured(
        {"model_type": "gemma3n", "text_config": {"num_hidden_layers": 4}}
    )
    assert given is not text and text.num_hidden_layers == 4
    build.configured({"model_type": "gemma3n", "eos_token_id": 7})
    off = {"sliding_window": 512, "use_sliding_window": False}
    build.configured({"model_type": "qwen2_vl", **off})


def test_what_its_class_cannot_build_is_refused_in_a_sentence() -> None:
    made = hf.trace_of(json.dumps({**LLAMA, "num_attention_heads": "many"}))
    assert "Traceback" not in made["error"] and len(made["error"]) < 400


def test_attention_that_depends_on_the_length_is_refused() -> None:
    """BigBird's is full up to 704 tokens and sparse beyond, and full for good after a short pass:
    one count would be wrong on one side. Where its file asks for full attention it is counted.
    """
    tool = benchmark()
    sparse = tool.defaults("big_bird", {"num_hidden_layers": 2})
    with refusal("attention_type of bert"):
        build.build_model(sparse)
    full = tool.row({**sparse, "attention_type": "original_full"})
    assert tool.verdict(full) == "exact"


def test_settings_that_its_code_cannot_run_are_refused_in_a_sentence() -> None:
    """DeepSeek-V2's class says no experts for a token, and then does not run."""
    config = benchmark().defaults("deepseek_v2", {"num_hidden_layers": 2})
    with refusal("of 'deepseek_v2' does not run on these"):
        build.build_model(config)
