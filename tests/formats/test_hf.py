"""Hugging Face config.json: published files give the models of the catalogue; malformed ones give a
sentence.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from junk import JUNK
from meshwright import catalog
from meshwright.cli.main import main
from meshwright.count.model import parameters
from meshwright.describe.layers import kinds
from meshwright.describe.model import Model
from meshwright.errors import BadInput
from meshwright.formats import resolve
from meshwright.formats.hf import at_length, families, load_hf, read_hf
from meshwright.formats.hf_keys import classes
from refusals import refusal

CONFIGS = json.loads(
    (Path(__file__).parents[1] / "published" / "hf_configs.json").read_text()
)
"""Name of the catalogue -> what the published config.json says of shapes."""


def alike(model: Model) -> Model:
    """The shapes of the model in one spelling: defaults written out, no length, and not what the
    files above leave out.
    """
    shapes = replace(
        model,
        name="",
        seq=1,
        notes=at_length(model).notes,
        kv_heads=model.K,
        head_dim=None if model.mla else model.h,
    )
    return replace(
        shapes,
        activation=None,
        norm_epsilon=1e-5,
        rope_base=10000.0,
        rotary_share=1.0,
        rope_scaling=None,
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_published_files_give_the_models_of_the_catalogue(name):
    assert alike(read_hf(CONFIGS[name])) == alike(catalog.model(name))


def test_length_is_not_what_the_model_can_be_served_with():
    assert read_hf(CONFIGS["deepseek-v3"]).seq == 8192
    assert read_hf(CONFIGS["phi3-mini"]).seq == 4096
    assert read_hf(CONFIGS["gpt2"]).seq == 1024


def test_spellings_of_new_and_old_versions():
    new, old = CONFIGS["falcon-7b"], dict(CONFIGS["falcon-7b"])
    old |= {
        "model_type": "RefinedWebModel",
        "n_layer": old.pop("num_hidden_layers"),
        "n_head": old.pop("num_attention_heads"),
    }
    assert alike(read_hf(old)) == alike(read_hf(new))
    gpt = CONFIGS["gpt-oss-20b"]
    assert read_hf(
        {k: v for k, v in gpt.items() if k != "layer_types"}
    ) == read_hf(gpt)
    moe = {
        k: v
        for k, v in CONFIGS["glm4.5"].items()
        if k != "first_k_dense_replace"
    }
    assert read_hf(
        {**moe, "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 89}
    ) == read_hf(CONFIGS["glm4.5"])


def test_a_falcon_says_its_positions():
    assert (
        read_hf({"model_type": "falcon", "alibi": True}).positions == "alibi"
    )


SHORT = CONFIGS["llama3-8b"]
WRONG = [
    ({}, "config.json has no model_type, which names the model's code"),
    (
        {"model_type": "yuan"},
        "the name of another family would give wrong counts",
    ),
    ({"model_type": ["llama"]}, "model_type 'a list' is not known"),
    ({"model_type": "llama", "hidden_size": None}, "has no hidden_size"),
    (SHORT | {"intermediate_size": None}, "has no intermediate_size"),
    (
        {"model_type": "kimi_k2", "hidden_size": 7168},
        "has no num_hidden_layers",
    ),
    (
        SHORT | {"num_hidden_layers": "32"},
        "num_hidden_layers must be a whole number",
    ),
    (SHORT | {"num_hidden_layers": 0}, "layers must be between 1"),
    (SHORT | {"hidden_size": -4}, "hidden_size must be a whole number"),
    (SHORT | {"hidden_size": 10**400}, "a number of more than 40 digits"),
    (SHORT | {"hidden_size": float("nan")}, "not nan"),
    (SHORT | {"hidden_size": True}, "not true"),
    (SHORT | {"num_key_value_heads": 5}, "kv_heads 5 must divide heads 32"),
    (SHORT | {"hidden_size": 4100}, "cannot be split into 32 heads"),
    (SHORT | {"tie_word_embeddings": 1}, "must be true or false"),
    (SHORT | {"vocab_size": [[]]}, "not a list"),
    (
        CONFIGS["deepseek-v3"] | {"n_group": 7},
        "groups 7 do not divide the 256 experts",
    ),
    (CONFIGS["gpt2"] | {"resid_pdrop": "x"}, "between 0 and 1"),
]


@pytest.mark.parametrize(("config", "reason"), WRONG, ids=range(len(WRONG)))
def test_wrong_files_are_sentences(config, reason):
    with refusal(reason) as caught:
        read_hf(config)
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


LITE = CONFIGS["deepseek-v2-lite"]
"""Of DeepSeek-V2's class, which has both rules."""


@pytest.mark.parametrize(
    ("config", "groups"),
    [
        (CONFIGS["deepseek-v3"], (8, 4)),  # topk_group: its class's
        (CONFIGS["deepseek-v3"] | {"topk_group": 2}, (8, 2)),
        (CONFIGS["deepseek-v3"] | {"n_group": 1, "topk_group": 1}, (1, 1)),
        (CONFIGS["deepseek-v3"] | {"n_group": None}, (1, 1)),
        (LITE | {"n_group": 8, "topk_group": 3}, (8, 3)),
        (
            LITE | {"n_group": 8, "topk_group": 3, "topk_method": "greedy"},
            (1, 1),
        ),
        (CONFIGS["kimi-k2"], (1, 1)),
        (CONFIGS["kimi-k2"] | {"n_group": 8, "topk_group": 4}, (8, 4)),
        (CONFIGS["glm4.5"], (1, 1)),
        (CONFIGS["glm4.5"] | {"n_group": 4, "topk_group": 2}, (4, 2)),
    ],
)
def test_groups_of_experts(config, groups):
    moe = read_hf(config).moe
    assert (moe.groups, moe.top_groups) == groups


CASES = json.loads((Path(__file__).parent / "hf_cases.json").read_text())
KINDS = {"F": "full_attention", "S": "sliding_attention"}


def case(kind, change, left_out):
    """A class's default configuration with keys changed and left out."""
    config = {"model_type": kind, **CASES["bases"][kind], **change}
    if config.get("layer_types"):
        config["layer_types"] = [
            KINDS[letter] for letter in config["layer_types"]
        ]
    return {key: value for key, value in config.items() if key not in left_out}


def windows(model):
    """Layers with a sliding window."""
    return sum(kind.window is not None for kind in kinds(model))


@pytest.mark.parametrize(
    ("kind", "change", "left_out", "weights", "sliding"), CASES["rows"]
)
def test_counts_are_those_of_transformers_or_refused(
    kind, change, left_out, weights, sliding
):
    try:
        model = read_hf(case(kind, change, left_out))
    except BadInput:
        # whose class does not say how many experts a token meets
        assert change or kind == "deepseek_v2"
        return
    assert parameters(model) == weights and sliding in (None, windows(model))
    assert not others(model)


def others(model: Model) -> list[str]:
    """Notes but those on lengths, on sizes that are left to the class, and on next-token blocks."""
    usual = ("does not say", "next-token block")
    notes = at_length(model).notes
    return [n for n in notes if not any(text in n for text in usual)]


def test_a_file_that_names_only_its_family_is_the_default_of_the_class():
    counts = {
        kind: n
        for kind, change, left_out, n, _ in CASES["rows"]
        if not change and not left_out
    }
    found = {
        kind: parameters(read_hf({"model_type": kind}))
        for kind in counts
        if kind != "deepseek_v2"
    }
    assert len(found) == 19 and found == {
        kind: n for kind, n in counts.items() if kind in found
    }


def test_a_mixture_of_experts_never_becomes_dense():
    """DeepSeek-V3 without the number of experts: its class has 256, and null is no number."""
    config = CONFIGS["deepseek-v3"]
    assert (
        parameters(
            read_hf(
                {k: v for k, v in config.items() if k != "n_routed_experts"}
            )
        )
        > 600e9
    )
    with refusal("n_routed_experts"):
        read_hf({**config, "n_routed_experts": None})


def test_every_family_has_the_keys_of_a_class():
    assert {family.like or kind for kind, family in families().items()} == set(
        classes()
    )


OTHERS = [
    {"architectures": ["MistralForCausalLM"]},
    {"architectures": "LlamaForCausalLM"},
    {"num_local_experts": 8},
    {"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8},
    {"layer_types": ["sliding_attention"] * 32},
    {"block_configs": [{"n_heads_in_group": 4}]},
    {"no_rope_layers": [1, 1, 1, 0]},
    {"num_nextn_predict_layers": 1},
    {"is_encoder_decoder": True},
    {"dual_chunk_attention_config": {"chunk_size": 8192}},
    {"index_topk": 2048},
    {"add_cross_attention": True},
    {"mamba_d_state": 16},
    {"interleave_moe_layer_step": 2},
    {"attention_out_bias": True},
    {"q_lora_rank": 512},
    {"num_layers": 40},
    {"d_model": 2048},
    {"text_config": {"num_hidden_layers": 2}, "is_encoder_decoder": True},
]


@pytest.mark.parametrize("more", OTHERS, ids=str)
def test_keys_of_another_architecture_are_refused(more):
    with refusal("config.json"):
        read_hf(SHORT | more)


NOTED = [
    {"architectures": ["LlamaForSequenceClassification"]},
    {"architectures": ["Eagle3LlamaForCausalLM"]},
    {"architectures": ["LlamaModel"]},
    {"causal_attn": False},
    {"block_size": 6},
    {"sliding_window": 4096},
    {"attention_chunk_size": 8192},
    {"residual_multiplier": 0.2},
    {"quantization_config": {"bits": 4}},
    {"vision_config": {"depth": 3}},
    {"use_qk_norm": True},
]


@pytest.mark.parametrize("more", NOTED, ids=str)
def test_keys_that_no_reader_knows_are_noted(more):
    ((key, value),) = more.items()
    (note,) = others(read_hf(SHORT | more))
    assert (value[0] if key == "architectures" else key) in note


def test_keys_that_change_nothing_are_not():
    plain = read_hf(SHORT)
    same = {
        "architectures": ["LlamaForCausalLM"],
        "layer_types": ["full_attention"] * 32,
        "transformers_version": "4.40",
        "eos_token_id": [1, 2],
        "num_experts": 0,
        "is_encoder_decoder": False,
        "cross_attention_hidden_size": None,
        "attention_dropout": 0.1,
        "num_layers": 32,
        "n_head": 32,
        "torch_dtype": "bfloat16",
        "typical_p": 1.0,
        "auto_map": {"AutoModel": "x.y"},
    }
    assert (
        read_hf(SHORT | same) == plain
        and not others(read_hf(SHORT | same))
        and not others(plain)
    )


def test_multimodal_files_say_that_only_the_language_model_is_counted():
    (note,) = others(read_hf(CONFIGS["gemma3-27b"]))
    assert "only the language model" in note and "vision_config" in note
    text = {
        **SHORT,
        "tie_word_embeddings": True,
        "architectures": ["LlamaForCausalLM"],
    }
    outer = {
        "model_type": "anything",
        "architectures": ["AnythingForConditionalGeneration"],
        "text_config": text,
    }
    assert (
        read_hf(outer).tied_embeddings
        and not read_hf(
            {**outer, "tie_word_embeddings": False}
        ).tied_embeddings
    )
    contrary = read_hf({**outer, "tie_word_embeddings": False})
    assert "false outside and true in text_config" in contrary.notes[-1]
    assert "towers and projectors" in read_hf(outer).notes[0]


@pytest.mark.parametrize(
    ("kind", "outside", "within", "tied", "noted"),
    [
        ("moss_transcribe_diarize", None, None, True, True),
        ("mistral3", None, None, True, True),
        ("moss_transcribe_diarize", None, False, True, True),
        ("moss_transcribe_diarize", False, None, False, False),
        ("aria", None, True, False, True),
        ("blip-2", True, False, False, True),
        ("blip-2", None, False, False, False),
        ("llava", False, True, True, True),
        ("llava", False, None, False, False),
        ("llava", True, False, True, True),
        ("audioflamingo3", True, True, False, True),
    ],
)
def test_the_class_of_the_whole_decides_the_tie(
    kind, outside, within, tied, noted
):
    """As transformers 5.23 builds it: by its own key or its default, by that of the text part, by
    either, or never; one matrix of the vocabulary more where they are not tied. A tie that neither
    part says and that the text part's class does not have is noted: published weights may lack it.
    """
    key = "tie_word_embeddings"
    text = {k: v for k, v in SHORT.items() if k != key}
    text |= {} if within is None else {key: within}
    whole = {"model_type": kind, "text_config": text}
    whole |= {} if outside is None else {key: outside}
    model = read_hf(whole)
    assert model.tied_embeddings == tied
    alone = read_hf({**SHORT, key: True})
    more = parameters(model) - parameters(alone)
    assert more == (0 if tied else model.vocab * model.hidden)
    assert any(key in note for note in model.notes) == noted


@pytest.mark.parametrize(
    ("version", "tied"),
    [("4.50.0.dev0", False), ("5.0.0", True), (None, True)],
)
def test_the_tie_of_an_older_file_is_that_of_its_text_part(version, tied):
    """transformers 4 asked the text part; of Mistral Small 3.1, whose file says nothing, the weights
    hold both matrices: 23.6 billion parameters in the language model, as published, not 22.9.
    """
    text = {
        "model_type": "mistral",
        "hidden_size": 5120,
        "intermediate_size": 32768,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 131072,
        "sliding_window": None,
    }
    whole = {"model_type": "mistral3", "text_config": text}
    whole |= {"transformers_version": version} if version else {}
    matrix = 131072 * 5120
    assert parameters(read_hf(whole)) == 23_572_403_200 - matrix * tied
    told = {**whole, "tie_word_embeddings": True}
    assert read_hf(told).tied_embeddings


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "qwen2_moe"])
def test_layer_types_decide_over_the_flag(kind):
    layers = {
        "model_type": kind,
        "num_hidden_layers": 4,
        "use_sliding_window": False,
        "sliding_window": 1024,
    }
    some = read_hf(
        {**layers, "layer_types": ["sliding_attention", "full_attention"] * 2}
    )
    assert (some.window, windows(some)) == (1024, 2) and read_hf(
        layers
    ).window is None
    with refusal(
        "layer_types has sliding_attention, but sliding_window is nothing"
    ):
        read_hf(
            {
                **layers,
                "sliding_window": None,
                "layer_types": ["sliding_attention"] * 4,
            }
        )
    with refusal("layer_types lists 3 layers, num_hidden_layers is 4"):
        read_hf({**layers, "layer_types": ["full_attention"] * 3})


def test_falcon_has_two_norms_only_where_it_says_two():
    falcon = CONFIGS["falcon-40b"]
    norms = [
        read_hf({**falcon, "num_ln_in_parallel_attn": n}).norms_per_layer
        for n in (None, 1, 2, 64)
    ]
    assert norms == [2, 1, 2, 1]


def test_two_names_of_one_key_must_agree():
    gpt = {"model_type": "gpt2", "n_layer": 12}
    assert read_hf({**gpt, "num_hidden_layers": 12}) == read_hf(gpt)
    with refusal("n_layer and num_hidden_layers are one key, but 12 and 24"):
        read_hf({**gpt, "num_hidden_layers": 24})


def test_predictions_and_plans_repeat_the_notes(tmp_path, capsys):
    (file := tmp_path / "config.json").write_text(
        json.dumps(SHORT | {"block_size": 6})
    )
    line = [str(file), "--batch", "64seq", "--json"]
    for verb in (
        ["predict", "--on", "8xh100-sxm", "--zero", "3"],
        ["plan", "--on", "8xh100-sxm"],
        ["plan", "--on", "1xh100-sxm"],
    ):
        main([*verb[:1], *line, *verb[1:]])
        told = json.loads(capsys.readouterr().out)
        notes = (told.get("best") or told)["notes"]
        assert any("not read: block_size" in note for note in notes), verb


KEYS = sorted(
    {key for config in CONFIGS.values() for key in config}
    | {
        "n_embd",
        "mlp_layer_types",
        "mlp_only_layers",
        "text_config",
        "architectures",
        "rope_parameters",
        "num_layers",
    }
)


@settings(
    max_examples=2000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.sampled_from(
        [*CONFIGS.values(), *({"model_type": kind} for kind in families())]
    ),
    st.dictionaries(
        st.sampled_from(KEYS), JUNK | st.integers(0, 64), max_size=8
    ),
    st.sets(st.sampled_from(KEYS), max_size=2),
)
def test_malformed_files_give_a_model_or_a_sentence(whole, junk, dropped):
    """Published ones, and those of every family that say nothing else."""
    config = {k: v for k, v in (whole | junk).items() if k not in dropped}
    try:
        model = read_hf(config)
    except BadInput as error:
        assert len(str(error)) < 600 and "\n" not in str(error)
    else:
        assert isinstance(model, Model)
        assert model.layers >= 1 and model.heads % model.K == 0 and hash(model)


def test_files(tmp_path):
    folder = tmp_path / "My-Llama"
    folder.mkdir()
    file = folder / "config.json"
    file.write_text(json.dumps(SHORT))
    assert load_hf(folder).name == load_hf(str(file)).name == "My-Llama"
    assert resolve.model(str(folder)) == load_hf(file)
    for text, reason in (
        ("[1]", "one JSON object"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "not valid JSON"),
        (
            '{"model_type": "llama", "hidden_size": ' + "9" * 4000 + "}",
            "more than 40 digits",
        ),
        (" " * (5 * 2**20), "larger than 4 MiB"),
    ):
        file.write_text(text)
        with refusal(reason):
            load_hf(file)
    file.write_bytes(b"\xff\xfe{}")
    with refusal("UTF-8"):
        load_hf(file)
    for path in (
        "no/such/config.json",
        "x\0y.json",
        "a" * 5000 + ".json",
        str(tmp_path),
    ):
        with refusal("cannot be read"):
            load_hf(path)


def test_files_as_their_authors_write_them() -> None:
    """Kinds of numbers say nothing of shapes, another name of the experts says the same, and lists
    that a class does not read must be what it does without them (MiMo-V2-Flash's own file).
    """
    tiny = {"num_hidden_layers": 4, "vocab_size": 1000}
    for kind, key in (
        ("qwen3_5_moe_text", "mamba_ssm_dtype"),
        ("glm_moe_dsa", "moe_router_dtype"),
    ):
        plain = {"model_type": kind, **tiny}
        assert read_hf({**plain, key: "float32"}) == read_hf(plain)
    glm = {"model_type": "glm_moe_dsa", **tiny, "n_routed_experts": 16}
    assert read_hf({**glm, "num_experts": 16}) == read_hf(glm)
    with refusal("num_experts is 8"):
        read_hf({**glm, "num_experts": 8})
    mimo = {"model_type": "mimo_v2_flash", **tiny, "num_key_value_heads": 4}
    own = {
        "hybrid_layer_pattern": [0, 1, 1, 1],
        "moe_layer_freq": [0, 1, 1, 1],
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "swa_num_key_value_heads": 8,
    }
    assert read_hf({**mimo, **own}) == read_hf(mimo)
    for key, other in (
        ("hybrid_layer_pattern", [0, 0, 1, 1]),
        ("swa_num_key_value_heads", 4),
    ):
        with refusal(key):
            read_hf({**mimo, **own, key: other})


@pytest.mark.parametrize("kind", ["llama4_text", "smollm3"])
def test_a_list_of_fewer_layers_than_there_are_is_refused(kind: str) -> None:
    sizes = {"num_hidden_layers": 4, "no_rope_layers": [1]}
    with refusal("no_rope_layers lists 1 layers"):
        read_hf({"model_type": kind, **sizes})
