"""The description of a job: what is written reads back equal, every mistake is a sentence that
names the field.
"""

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from junk import JUNK
from meshwright import catalog
from meshwright.describe import (
    assumptions,
    chip,
    cluster,
    framework,
    job,
    layout,
    model,
)
from meshwright.describe.batch import parse_batch
from meshwright.describe.fields import Checked, fields_of
from meshwright.describe.read import read, to_dict
from meshwright.errors import BadInput
from meshwright.formats import parse_toml
from meshwright.formats.flags import read_flags
from meshwright.formats.toml import dump_job, load_job
from meshwright.formats.toml_writer import dumps_toml
from meshwright.schedule import SCHEDULES
from meshwright.web import question
from refusals import refusal

TEXT = st.text(
    st.characters(categories=("L", "N", "P", "S"), include_characters=" "),
    max_size=12,
)
FLAG = st.booleans()
ORIGIN = st.fixed_dictionaries(
    {}, optional={"source": TEXT, "date": st.just("2024-10"), "note": TEXT}
)
SOURCES = st.dictionaries(TEXT.filter(bool), ORIGIN, max_size=2)
REGISTERED = {
    "framework": ["", *framework.frameworks()],
    "schedule": [*SCHEDULES],
}
"""Names that a job looks up when it is written and read."""
MIXED = layout.Layout(
    tp=4, dp=16, placement=dict.fromkeys(layout.AXES, (2, 4))
)
JOBS = [
    job.Job("llama3-8b", "64xh100", batch=64),
    job.Job("deepseek-v3", "64xtpu-v5p", batch=64, layout=MIXED),
    job.Job("gpt3-175b", "512xselene", batch=512, assumptions="lbl-2024"),
    job.Job("mixtral-8x7b", "8xepoch-h100", batch=8, assumptions="epoch-2024"),
]
THINGS = [
    *JOBS,
    *map(catalog.model, catalog.names("models")),
    *map(catalog.chip, catalog.names("chips")),
    *map(catalog.network, catalog.names("networks")),
    *assumptions.SETS.values(),
]


def parts(thing):
    """A description and all that it holds of what a file can hold."""
    yield thing
    for name, field in fields_of(type(thing)).items():
        value = None if field.kind.injected else getattr(thing, name)
        for part in value if isinstance(value, tuple) else [value]:
            if isinstance(part, Checked):
                yield from parts(part)


KNOWN = {}
for thing in THINGS:
    for part in parts(thing):
        KNOWN.setdefault(type(part), []).append(part)


ANYTHING = st.one_of(
    st.sampled_from(KNOWN[kind]) for kind in dict.fromkeys(map(type, THINGS))
)
WORDS = ("full:4", "mlp+moe_act", "slots", "1,2*3", "optimizer", "all-to-all")
"""Texts of layouts that are read: some of them by each field."""


def values(kind, old):
    """Values that a field of this kind may have, where it has this one."""
    least, most = kind.limits
    every = st.just(old)
    if kind.type in KNOWN:
        some = [old] if old is not None else KNOWN[kind.type]
        every = st.sampled_from(some).flatmap(changed)
    elif kind.words and kind.type is str:
        every = st.sampled_from(kind.words)
    elif kind.type is str:
        every = TEXT if kind.free else st.sampled_from(WORDS)
    elif kind.type is bool:
        every = FLAG
    elif kind.type is float:
        every = st.floats(max(least, 1e-9), min(most, 1e18))
    elif kind.type is int or (kind.type is Any and kind.range):
        every = st.integers(int(least), int(min(most, 1e6)))
    elif kind.type is tuple and old:
        every = st.tuples(*(values(kind.parts[0], item) for item in old))
    elif kind.type is Mapping:
        (_, entry), table = kind.parts, {}
        if isinstance(old, Mapping):
            table = {key: values(entry, value) for key, value in old.items()}
        every = st.fixed_dictionaries(table)
    return every | st.none() if kind.none else every


@st.composite
def changed(draw, thing):
    """A description with some fields of it, and of what it holds, at other values that they may
    have, as far as there is such a thing.
    """
    every = fields_of(type(thing))
    held = [n for n in every if isinstance(getattr(thing, n), Checked)]
    some = draw(st.lists(st.sampled_from([*every]), max_size=4))
    for name in (*some, *held):
        kind, old = every[name].kind, getattr(thing, name)
        some_values = values(kind, old)
        if name == "sources":
            some_values = SOURCES
        elif name in REGISTERED and kind.type is str:
            some_values = st.sampled_from(REGISTERED[name])
        new = draw(some_values)
        with suppress(BadInput):
            thing = dataclasses.replace(thing, **{name: new})
    return thing


def file_of(write, *thing):
    """What is written of a thing; nothing else is looked at where it holds a Python object, which
    a file says by the name of its set.
    """
    try:
        return write(*thing)
    except BadInput as error:
        assume("holds an object" not in str(error))
        raise


SLOW = settings(
    max_examples=100, deadline=None, suppress_health_check=list(HealthCheck)
)


@SLOW
@given(ANYTHING.flatmap(changed), FLAG)
def test_what_is_written_reads_back_equal(thing, defaults):
    data = tomllib.loads(dumps_toml(file_of(to_dict, thing, defaults)))
    back = read(type(thing), data)
    assert back == thing
    assert getattr(back, "sources", None) == getattr(thing, "sources", None)


@SLOW
@given(st.sampled_from(JOBS).flatmap(changed))
def test_a_job_file_reads_back_equal(thing):
    text = file_of(dump_job, thing)
    back = load_job(parse_toml(text, "job.toml"), bare=False)
    assert back == thing
    assert dump_job(back) == text


def test_catalogue_entries_are_written_by_name():
    plain = job.Job(
        catalog.model("llama3-70b"),
        catalog.cluster("1024xh100-sxm"),
        512,
        layout.Layout(tp=8, dp=128),
    )
    assert (
        dump_job(plain)
        == '[model]\nname = "llama3-70b"\n\n[cluster]\non = "1024xh100-sxm"\n\n[layout]\ntp = 8\ndp'
        ' = 128\n\n[job]\nbatch = "512seq"\nprecision = "bf16"\noptimizer = "adamw"\nassumptions'
        ' = "realistic"\n'
    )


GROUPED = {"experts": 8, "top_k": 3, "expert_ffn": 9}


def describe(**changes):
    tables = {
        "model": {"name": "llama3-8b"},
        "cluster": {"on": "64xh100"},
        "layout": {"tp": 8, "dp": 8},
        "job": {"batch": "64seq"},
    }
    for path, value in changes.items():
        table, key = path.split("__")
        tables[table] = {**tables[table], key: value}
    return tables


def test_a_job_says_only_what_differs():
    thing = load_job(
        describe(
            model__seq=4096,
            model__window=1024,
            job__batch="4M",
            job__tokens="15T",
            job__assumptions="lbl-2024",
        )
    )
    assert thing.model == dataclasses.replace(
        catalog.model("llama3-8b"), seq=4096, window=1024
    )
    assert (thing.batch, thing.tokens, thing.assumptions) == (
        960,
        15e12,
        assumptions.LBL,
    )
    assert load_job(
        describe(job__optimizer={"name": "sgd", "flops": 5})
    ).optimizer == job.Optimizer("sgd", 8.0, flops=5.0)
    assert load_job(
        describe(job__precision={"compute": "fp8"})
    ).precision == job.Precision("fp8")
    changed = load_job(
        describe(
            job__assumptions={"name": "realistic", "count": {"causal": "full"}}
        )
    ).assumptions
    assert changed == dataclasses.replace(
        assumptions.REALISTIC,
        count=dataclasses.replace(assumptions.REALISTIC.count, causal="full"),
    )


def test_chips_and_networks_by_name_by_table_or_changed():
    h100 = catalog.chip("h100")
    by_name = load_job(
        {**describe(), "cluster": {"chips": 16, "chip": "h100-sxm"}}
    ).cluster
    assert (by_name.chip, by_name.network.name, by_name.sizes) == (
        h100,
        "dgx-h100",
        (8, 2),
    )
    changed = load_job(
        describe(
            cluster__chip={"hbm_bytes": "96 GB"},
            cluster__network="superpod-h100",
        )
    ).cluster
    assert (changed.chip, changed.network.name) == (
        dataclasses.replace(h100, hbm_bytes=96e9),
        "superpod-h100",
    )
    # a changed number loses its source
    assert (
        "hbm_bytes" not in changed.chip.sources
        and "sustained" in changed.chip.sources
    )
    slow = load_job(
        describe(
            cluster__network={
                "dims": [
                    {
                        "name": "lan",
                        "bandwidth": "10 Gbit/s",
                        "latency": "50 us",
                    }
                ]
            }
        )
    ).cluster
    assert (slow.network.dims[0].bandwidth, slow.network.name) == (
        1.25e9,
        "dgx-h100",
    )
    assert (
        load_job({**describe(), "cluster": "512xselene"}).cluster.chip.name
        == "a100-80"
    )


def test_numbers_with_their_source():
    value = {
        "value": "3.35 TB/s",
        "source": "a datasheet",
        "date": "2023-03",
        "note": "dense",
    }
    thing = load_job(
        describe(cluster__chip={"hbm_bandwidth": value})
    ).cluster.chip
    assert thing.hbm_bandwidth == 3.35e12
    assert thing.sources["hbm_bandwidth"] == {
        "source": "a datasheet",
        "date": "2023-03",
        "note": "dense",
    }


def test_a_file_needs_units_and_python_does_not(tmp_path):
    """A bandwidth of 400 in a file may be 400 GB/s or 400 Gbit/s, and was 400 B/s."""
    network = catalog.network("dgx-h100")
    plain = {**describe(), "cluster": {"on": "8xh100-sxm"}}
    fast = {**to_dict(network.dims[0]), "bandwidth": 400}
    plain["cluster"]["network"] = {"name": "hall", "dims": [fast]}
    assert load_job(plain).cluster.network.dims[0].bandwidth == 400
    file = tmp_path / "job.toml"
    said = "has no unit: say '400 GB/s' or '400 Gbit/s'"
    fields = re.escape("cluster.network.dims[0].bandwidth 400 ")
    fast["latency"] = "2 us"
    file.write_text(dumps_toml(plain))
    with refusal(fields + said):
        load_job(file)
    with refusal(fields + said):
        read_flags(str(file), {})
    with refusal(fields + said):
        question.ask({"job": file.read_text()}, [])
    fast["bandwidth"] = "400 GB/s"
    file.write_text(dumps_toml(plain))
    assert load_job(file).cluster.network.dims[0].bandwidth == 400e9
    # a changed field of a named chip keeps the others, whose numbers are in SI units
    plain["cluster"] = {"on": "8xh100-sxm", "chip": {"usd_per_hour": 2.5}}
    file.write_text(dumps_toml(plain))
    chip = load_job(file).cluster.chip
    assert chip.usd_per_hour == 2.5
    assert chip.hbm_bytes == catalog.chip("h100-sxm").hbm_bytes


def test_files(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text(dumps_toml(describe()))
    assert load_job(file) == load_job(str(file)) == load_job(describe())
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads":'
        ' 4, "vocab_size": 9}'
    )
    file.write_text(
        dumps_toml(
            {**describe(), "model": {"config": "config.json", "seq": 512}}
        )
    )
    assert (load_job(file).model.hidden, load_job(file).T) == (256, 512)
    with refusal("files are not read here"):
        load_job(file, files=False)
    for text, reason in (
        ("a = [" * 50_000, "nested too deeply|not valid TOML"),
        ("x = " + "9" * 5000, "not valid TOML"),
        ("model = ", "not valid TOML"),
        ("a" + ".a" * 1_000_000 + " = 1", "nested too deeply"),
        ("#" * (5 * 2**20), "larger than 4 MiB"),
        ("", r"needs a table \[model\]"),
        ("modle = 1", "did you mean model"),
    ):
        file.write_text(text)
        with refusal(reason):
            load_job(file)
    with refusal("cannot be read"):
        load_job(tmp_path / "no.toml")


BATCHES = [
    (
        "4M",
        8192,
        488,
        "4,000,000 tokens rounded to 488 sequences of 8,192 (3,997,696 tokens)",
    ),
    ("4Mi", 8192, 512, None),
    ("512seq", 8192, 512, None),
    ("512 sequences", 1, 512, None),
    ("2kseq", 1, 2000, None),
    (8192, 8192, 1, None),
    (8192.0, 4096, 2, None),
    ("4,194,304 tokens", 8192, 512, None),
]


@pytest.mark.parametrize(("text", "seq", "sequences", "note"), BATCHES)
def test_batches(text, seq, sequences, note):
    count, said = parse_batch(text, seq, 1)
    assert count == sequences
    assert (said is None) == (note is None) and (note or "") in (said or "")


def test_rounding_is_said():
    """64 chips share 128 sequences, no number nearer to 122.07 within 5 %."""
    notes: list[str] = []
    assert load_job(describe(job__batch="1M"), notes=notes).batch == 128
    assert notes == [
        "batch: 1,000,000 tokens rounded to 128 sequences of 8,192 (1,048,576 tokens, +4.9 %),"
        " which 64 of 64 chips share evenly; the nearest: --batch 122seq"
    ]


@pytest.mark.parametrize(
    ("text", "chips", "sequences"),
    [("4M", 2048, 512), ("1M", 256, 128), ("1M", 1024, 128), ("1M", 96, 120)],
)
def test_millions_are_powers_of_two_where_all_chips_share_them(
    text: str, chips: int, sequences: int
) -> None:
    """4M is 2^22, a sequence of 8,192 for four of 2,048 chips each, which would leave 128 idle of
    480; 96 chips share neither 122 nor 128, and 24 of them 120.
    """
    assert parse_batch(text, 8192, chips)[0] == sequences


NEW_CHIP = {
    "matrix_flops": {},
    "name": "x",
    "vector_flops": 1,
    "hbm_bytes": 1,
    "hbm_bandwidth": 1,
}
DEEP: dict = {}
DEEP["model"] = DEEP
WRONG = [
    (
        describe(job__batch=512),
        "batch of 512 tokens is less than one sequence of 8,192; for sequences write '512seq'",
    ),
    (
        describe(job__batch="8000", job__seq=10_485_760),
        "batch must be at least 10,485,760 .'1seq'., or seq at most 8,000",
    ),
    (describe(job__batch="0seq"), "batch '0seq' must be between 1"),
    (describe(job__batch="1.5seq"), "whole number of sequences"),
    (describe(job__batch="seq"), "batch 'seq' has no number"),
    (describe(job__batch=None), "batch must be tokens"),
    (describe(job__batch=-5), "between 1"),
    (describe(job__batch=10**5000), "finite"),
    (describe(job__batch="4 GB"), "is in B, but token"),
    (
        describe(job__batch=[4]),
        "batch must be tokens such as '4M', .* not a list",
    ),
    (describe(job__batch=True), "not true"),
    ({**describe(), "job": {}}, "job needs batch"),
    ({**describe(), "job": 3}, "job must be a table, not 3"),
    (
        {**describe(), "run": {}},
        "table 'run' is not known; known: cluster, job",
    ),
    ({**describe(), 7: {}}, "table '7' is not known"),
    (
        describe(model__heades=3),
        "model: field 'heades' is not known; did you mean heads",
    ),
    (
        describe(model__layers={"value": 3, "sauce": "x"}),
        "model.layers must be a table of source, date, note",
    ),
    (describe(model__layers={"x": DEEP}), "model.layers must be one value"),
    (describe(model__norm="x" * 10**6), "printable"),
    (describe(model__name="a\nb"), "one line"),
    (describe(model__name="\ud800"), "printable"),
    (describe(model__kv_heads=5), "kv_heads 5 must divide heads 32"),
    (
        describe(model__name="llama3-9b"),
        (
            "did you mean llama3-8b.*to define a new one give layers, hidden, heads, ffn, vocab,"
            " seq too"
        ),
    ),
    (describe(model__moe={"experts": 4}), "model.moe needs top_k, expert_ffn"),
    (describe(model__moe="many"), "model.moe must be a table"),
    (
        describe(model__moe={"experts": 4, "top_k": 5, "expert_ffn": 9}),
        "model.moe: top_k 5 is more than the 4 experts",
    ),
    (
        describe(model__moe=GROUPED | {"groups": 3}),
        "model.moe: groups 3 do not divide the 8 experts",
    ),
    (
        describe(model__moe=GROUPED | {"groups": 4, "top_groups": 5}),
        "model.moe: top_groups 5 is more than the 4 groups",
    ),
    (
        describe(model__moe=GROUPED | {"groups": 4}),
        "model.moe: top_k 3 is more than the 2 experts of 1 of 4 groups",
    ),
    (
        describe(
            model__moe={
                "experts": 4,
                "top_k": 2,
                "expert_ffn": 9,
                "shared_gate": True,
            }
        ),
        "model.moe: shared_gate scales shared experts, and there are none; give shared_ffn",
    ),
    (
        describe(model__sources={"layers": 3}),
        "model.sources.* must be a table of source, date, note",
    ),
    (describe(model__sources=3), "must be a table"),
    ({**describe(), "model": None}, "model must be a table, not nothing"),
    ({**describe(), "model": {}}, "model needs name, layers"),
    ({**describe(), "model": DEEP}, "field 'model' is not known"),
    (describe(cluster__on=5), "cluster.on must be a text"),
    (
        describe(cluster__on="64xh900"),
        "chip 'h900' is not known; did you mean",
    ),
    (
        describe(cluster__chip={"hbm_bytes": "80 GB/s"}),
        "cluster.chip.hbm_bytes '80 GB/s' is in B/s, but B is needed",
    ),
    (
        {
            **describe(),
            "cluster": {"chips": 8, "network": "dgx-h100", "chip": NEW_CHIP},
        },
        "matrix_flops must name at least one precision",
    ),
    (
        describe(cluster__network={"dims": []}),
        "cluster.network: dims must have at least one",
    ),
    (
        describe(cluster__network={"dims": [{"name": "x"}]}),
        r"cluster.network.dims\[0\] needs bandwidth, latency",
    ),
    (
        describe(cluster__network={"dims": 3}),
        "cluster.network.dims must be a list, not 3",
    ),
    (describe(cluster__network={"dims": [3] * 2000}), "at most 1000"),
    (
        describe(cluster__network="x"),
        "cluster.network|network 'x' is not known",
    ),
    (
        describe(
            cluster__network={
                "dims": [
                    {"name": n, "bandwidth": 1, "latency": 0} for n in "ab"
                ]
            }
        ),
        "only the last dimension may be without a size",
    ),
    (
        describe(layout__placement={"tp": [1]}),
        "placement must give each of tp, cp, dp, pp",
    ),
    (
        describe(
            job__assumptions={
                "name": "realistic",
                "count": {"gathered_keys": "keep"},
            }
        ),
        "job.assumptions.count.gathered_keys 'keep' is not known; did you mean kept",
    ),
    (
        describe(
            job__assumptions={
                "name": "realistic",
                "overlap": {"tp": {"share": 2}},
            }
        ),
        "job.assumptions.overlap.tp.share is decided by the framework",
    ),
]


@pytest.mark.parametrize(("tables", "reason"), WRONG, ids=range(len(WRONG)))
def test_every_mistake_is_a_sentence(tables, reason):
    with refusal() as caught:
        load_job(tables)
    assert re.search(reason, str(caught.value)), caught.value
    assert len(str(caught.value)) < 600 and "\n" not in str(caught.value)


NUMBERS = [
    (kind, name)
    for kind in KNOWN
    for name, field in fields_of(kind).items()
    if field.kind.type in (int, float, bool)
    or (field.kind.type is Any and field.kind.range)
    if (kind, name) != (job.Job, "batch")  # which is said in tokens, too
]
"""Fields that hold one number, or true or false."""


def wrong_numbers(field):
    """Values that no such field has, in Python and in a file."""
    kind = field.kind
    if kind.type is bool:
        return ["maybe", 2, [True], math.nan]
    least, most = kind.limits
    less = [0] if least > 0 else [-1, -2.5] if least == 0 else []
    # rooflines ask for fractions of ranks, of any size
    real = [math.inf, most * 10] if kind.type is not Any else []
    half = [1.5] if kind.type is int else []
    none = [] if kind.none or field.default is None else [None]
    same = ["eight", True, [1, 2], math.nan, -math.inf, 10**400]
    return [*less, *real, *half, *none, *same]


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_a_wrong_number_is_refused_by_the_name_of_its_field(kind, name):
    thing, where = KNOWN[kind][0], f"{kind.__name__.lower()}.{name}"
    for wrong in wrong_numbers(fields_of(kind)[name]):
        with refusal(f"^{re.escape(where)} ") as made:
            dataclasses.replace(thing, **{name: wrong})
        with refusal(f"^{re.escape(where)} ") as told:
            read(kind, {**to_dict(thing), name: wrong})
        assert all(len(str(e.value)) < 200 for e in (made, told))


PLACES = [
    (table, f.name)
    for table, cls in (
        ("model", model.Model),
        ("cluster", cluster.Cluster),
        ("layout", layout.Layout),
        ("job", job.Job),
    )
    for f in dataclasses.fields(cls)
]
NESTED = [
    ("cluster", "chip", f.name) for f in dataclasses.fields(chip.Chip)
] + [("model", "moe", f.name) for f in dataclasses.fields(model.MoE)]


@settings(
    max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(st.sampled_from(PLACES + NESTED), JUNK)
def test_junk_anywhere_is_a_job_or_a_sentence(place, junk):
    tables = {name: dict(table) for name, table in describe().items()}
    tables[place[0]][place[1]] = junk if len(place) == 2 else {place[2]: junk}
    try:
        assert isinstance(load_job(tables, files=False), job.Job)
    except BadInput as error:
        assert len(str(error)) < 600 and "\n" not in str(error)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200) | JUNK)
def test_junk_files_are_sentences(text):
    with refusal():
        load_job(
            parse_toml(text, "x") if isinstance(text, str) else {"model": text}
        )


def test_texts_are_escaped():
    data = {
        "a key": 'quote " slash \\ delete \x7f tab \t line \n é 😀',
        "b": [1, 1e22, True, {"c": "d"}],
        "t": {"x.y": {"z": 5e-324}},
    }
    assert tomllib.loads(dumps_toml(data)) == data


def test_a_writer_refuses_what_a_file_cannot_hold():
    import numpy as np

    with refusal("tp holds a ndarray"):
        to_dict(layout.Layout(tp=np.ones(3)))
    # one row of a table of layouts
    row = layout.Layout(tp=np.float64(8), dp=np.int64(4))
    assert read(
        layout.Layout, parse_toml(dumps_toml(to_dict(row)), "x")
    ) == layout.Layout(tp=8, dp=4)
