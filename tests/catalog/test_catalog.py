"""The catalogue: every entry loads, is found by every name, says where its numbers come from,
agrees with papers.
"""

import dataclasses
import re

import pytest

from meshwright import catalog
from meshwright.count.model import parameters
from meshwright.describe.read import to_dict
from meshwright.formats import resolve
from meshwright.report.card import CardTable
from meshwright.report.catalog import catalog_card
from refusals import refusal

CHIPS, NETWORKS, MODELS = (
    catalog.names(kind) for kind in ("chips", "networks", "models")
)
PAPERS = [
    name for name in CHIPS if name.startswith(("lbl-", "epoch-", "book-"))
]
"""Machines of a paper: all numbers of an entry are from one source."""
GET = {
    "chips": catalog.chip,
    "networks": catalog.network,
    "models": catalog.model,
}


def test_there_is_enough_of_each_kind():
    assert len(CHIPS) >= 30
    assert len(NETWORKS) >= 50
    assert len(MODELS) >= 70


@pytest.mark.parametrize("kind", GET)
def test_every_name_and_alias_finds_its_own_entry(kind):
    for name in catalog.names(kind):
        assert GET[kind](name).name == name
        assert GET[kind](name.upper()).name == name
    for alias, name in catalog.aliases(kind).items():
        assert GET[kind](alias).name == name, alias


@pytest.mark.parametrize("kind", GET)
def test_no_two_entries_claim_one_name(kind):
    owner = {}
    for name, table in catalog._tables(kind).items():
        for claim in (name, *table.get("aliases", ())):
            assert owner.setdefault(catalog._key(claim), name) == name


def test_a_name_of_both_a_chip_and_a_network_means_one_machine():
    for name in set(catalog._index("chips")) & set(catalog._index("networks")):
        assert catalog.network(name).chip == name
        assert catalog.chip(name).network == name


REAL_DEVICES = {
    "Tesla V100-SXM2-16GB": "v100-16",
    "Tesla V100-SXM2-32GB": "v100-32",
    "NVIDIA A100-SXM4-40GB": "a100-40",
    "NVIDIA A100-SXM4-80GB": "a100-80",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H200": "h200",
    "NVIDIA H800": "h800",
    "NVIDIA B200": "b200",
    "NVIDIA L40S": "l40s",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "4090": "rtx-4090",
    "AMD Instinct MI355X": "mi355x",
    "NVIDIA GB200": "gb200",
    "NVIDIA B300 SXM6 AC": "b300",
    "NVIDIA GB300": "gb300",
    "NVIDIA PG509-210": "h100-96-hbm2e",
    "AMD Instinct MI300X": "mi300x",
    "AMD Instinct MI250X": "mi250x",
    "TPU v4": "tpu-v4",
    "TPU v5 lite": "tpu-v5e",
    "TPU v5p": "tpu-v5p",
    "TPU v5": "tpu-v5p",
    "TPU v6 lite": "tpu-v6e",
    "TPU7x": "tpu-7x",
}


@pytest.mark.parametrize("device", REAL_DEVICES)
def test_what_the_driver_calls_the_device(device):
    assert catalog.chip(device).name == REAL_DEVICES[device]


@pytest.mark.parametrize("name", CHIPS)
def test_a_chip_has_a_network_and_a_network_a_chip(name):
    chip = catalog.chip(name)
    assert catalog.network(chip.network)
    assert catalog.cluster(f"64x{name}").chip is chip


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_makes_a_cluster_of_its_chip(name):
    cluster = catalog.cluster(f"512x{name}")
    assert cluster.chip.name == cluster.network.chip
    assert cluster.network.name == name
    assert cluster.chips == 512
    assert cluster.network.dims[-1].size is None


@pytest.mark.parametrize("kind", GET)
def test_every_number_has_a_source_and_a_date(kind):
    for name in catalog.names(kind):
        sources = GET[kind](name).sources
        whole = sources.get("*", {})
        assert whole.get("source"), name
        assert re.fullmatch(r"(19|20)\d\d-\d\d", whole.get("date", "")), name
        for field, origin in sources.items():
            assert set(origin) <= {"source", "date", "note"}, (name, field)
            assert "date" in origin or "source" not in origin, (name, field)


def test_every_chip_has_a_price_or_says_that_nobody_publishes_one() -> None:
    """Each with source and date; papers' own machines are left as the papers have them."""
    paid = 0
    for name in sorted({*CHIPS} - {*PAPERS}):
        chip = catalog.chip(name)
        about = chip.sources["usd_per_hour"]
        if chip.usd_per_hour:
            assert re.fullmatch(r"20\d\d-\d\d", about["date"]), name
            assert 0.1 < chip.usd_per_hour < 25, name
            assert chip.no_price == "no price"
            paid += 1
        else:
            assert chip.no_price == "no public price", name
            assert "20" in about["note"], "when somebody looked"
    assert paid >= 28


def test_numbers_that_a_datasheet_does_not_print_have_their_own_source():
    for name in CHIPS:
        chip = catalog.chip(name)
        for field in ("sustained", "usd_per_hour"):
            assert field in chip.sources or not getattr(chip, field), (
                name,
                field,
            )
        assert (
            name in PAPERS
            or chip.hierarchy is None
            or "hierarchy.boost_hz" in chip.sources
        ), name
    for name in NETWORKS:
        network = catalog.network(name)
        for i, dim in enumerate(network.dims):
            if network.chip not in PAPERS:
                assert f"dims[{i}].latency" in network.sources, name
                assert (
                    dim.efficiency is None
                    or f"dims[{i}].efficiency" in network.sources
                ), name


@pytest.mark.parametrize("name", [n for n in CHIPS if n not in PAPERS])
def test_peaks_are_dense_and_of_one_chip(name):
    chip = catalog.chip(name)
    peak = chip.matrix_flops
    half = peak.get("bf16", peak.get("fp16"))
    # a sparse peak would show up as twice that
    tf32 = 1.0 if name == "trainium2" else 0.5  # its TF32 runs as fast as BF16
    fp8 = 1.0 if name == "gaudi3" else 2.0  # as fast as BF16 there
    for precision, share in (("tf32", tf32), ("fp8", fp8), ("fp16", 1.0)):
        if precision in peak:
            assert peak[precision] / half == pytest.approx(share, rel=0.03), (
                precision
            )
    # tensor cores of GeForce cards that add up in FP32 run at half their rate
    assert chip.vector_flops < half / (1.9 if name.startswith("rtx-") else 3)
    assert 0 <= chip.power_w <= 1500
    assert 15e9 < chip.hbm_bytes < 310e9
    assert 0.29e12 < chip.hbm_bandwidth <= 8e12


@pytest.mark.parametrize(
    "name", [n for n in CHIPS if catalog.chip(n).hierarchy]
)
def test_clock_and_units_give_the_peak(name):
    chip, h = catalog.chip(name), catalog.chip(name).hierarchy
    assert h.flop_per_clock * 128 * h.sms * h.boost_hz == pytest.approx(
        chip.peak("fp16"), rel=0.01
    )


def test_columns_of_lbl_as_printed():
    """Subramanian et al. 2024, systems/config-*.json: TFLOP/s, GB/s, GB; NVLink and InfiniBand GB/s
    one way.
    """
    printed = {
        "a100": (312, 78, 1555, 80, 300, 25),
        "h200": (989.4, 133.8, 4800, 141, 450, 50),
        "b200": (2500, 339, 8000, 192, 900, 100),
    }
    for gpu, (tensor, vector, hbm_rate, hbm, nvlink, ib) in printed.items():
        chip = catalog.chip(f"lbl-{gpu}")
        assert chip.peak("fp16") == float(f"{tensor}e12")
        assert chip.vector_flops == float(f"{vector}e12")
        assert chip.hbm_bandwidth == hbm_rate * 1e9
        assert chip.hbm_bytes == hbm * 1e9
        for size in (4, 8, 64):
            fast, slow = catalog.network(f"lbl-{gpu}-nvs{size}").dims
            for dim, *published in (
                (fast, size, nvlink * 1e9, 2.5e-6, 0.7),
                (slow, None, ib * 1e9, 5e-6, 0.7),
            ):
                own = dim.size, dim.bandwidth, dim.latency, dim.efficiency
                assert [*own] == published


def test_bandwidth_is_one_way():
    """NVLink is printed both ways (600, 900, 1800 GB/s); a torus axis counts two links of one
    direction each.
    """
    expected = {
        "dgx-1-v100": 150,
        "dgx-a100": 300,
        "dgx-h100": 450,
        "dgx-h800": 200,
        "dgx-b200": 900,
        "gb300-nvl72": 900,
    }
    for name, rate in (
        expected | {"tpu-v5p-pod": 180, "tpu-v5e-pod": 90, "mi300x-node": 448}
    ).items():
        assert catalog.network(name).dims[0].bandwidth == rate * 1e9, name
    # 100 Gbit/s between two GPUs, 96 % of it
    assert catalog.network("dgx-1-v100").dims[1].rate() == pytest.approx(6e9)


PUBLISHED = {  # billions of parameters: model cards and papers
    "llama-7b": 6.74,
    "llama-65b": 65.29,
    "llama2-70b": 68.98,
    "llama3-8b": 8.03,
    "llama3-70b": 70.55,
    "llama3-405b": 405.85,
    "llama3.2-1b": 1.236,
    "llama3.2-3b": 3.213,
    "mistral-7b": 7.242,
    "mixtral-8x7b": 46.70,
    "mixtral-8x22b": 140.6,
    "deepseek-v2": 235.7,
    "deepseek-v2-lite": 15.71,
    "deepseek-v3": 671.03,
    "kimi-k2": 1026.4,
    "qwen2.5-7b": 7.616,
    "qwen2.5-72b": 72.71,
    "qwen3-8b": 8.191,
    "qwen3-32b": 32.76,
    "qwen3-30b-a3b": 30.53,
    "qwen3-235b-a22b": 235.09,
    "gemma2-9b": 9.242,
    "gemma2-27b": 27.23,
    "falcon-7b": 6.922,
    "falcon-40b": 41.3,
    "olmo2-7b": 7.299,
    "gpt-oss-20b": 20.91,
    "gpt-oss-120b": 116.83,
    "gpt2": 0.1244,
    "gpt2-xl": 1.558,
    "gpt3-175b": 174.6,
    "bloom-176b": 176.25,
    "palm-540b": 540.35,
    "gpt-neox-20b": 20.55,
    "phi3-mini": 3.821,
    "phi4": 14.66,
    "glm4.5-air": 106.85,
    "turing-nlg-530b": 529.6,
    "gpt3-1t": 1006.7,
    "vit-era5": 86.98,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_as_published(name):
    assert parameters(catalog.model(name)) / 1e9 == pytest.approx(
        PUBLISHED[name], rel=6e-4
    )


@pytest.mark.parametrize(
    "name", [n for n in MODELS if n.startswith("megatron-")]
)
def test_megatron_table_1(name):
    """The names are the paper's own count in billions, to one decimal."""
    assert parameters(catalog.model(name)) / 1e9 == pytest.approx(
        float(name[9:-1]), abs=0.051
    )


@pytest.mark.parametrize(
    "name", [n for n in MODELS if n.startswith("gpt3-") and n != "gpt3-1t"]
)
def test_gpt3_sizes_are_those_of_their_names(name):
    size = float(name[5:-1]) / (1e3 if name.endswith("m") else 1)
    assert parameters(catalog.model(name)) / 1e9 == pytest.approx(
        size, rel=0.021
    )


@pytest.mark.parametrize("name", MODELS)
def test_models_are_consistent(name):
    model = catalog.model(name)
    assert hash(model) == hash(dataclasses.replace(model))
    assert model.heads % model.K == 0
    assert (
        model.moe is None
        or parameters(model, active=True) < parameters(model) / 2
    )
    assert model.window is None or model.window <= model.seq
    assert to_dict(model)["name"] == name


def test_cluster_text():
    cluster = catalog.cluster("1,024 x H100-SXM")
    assert (cluster.chips, cluster.sizes, cluster.network.name) == (
        1024,
        (8, 128),
        "dgx-h100",
    )
    assert catalog.cluster("256xh100", network="superpod-h100").sizes == (
        8,
        32,
        1,
    )
    assert catalog.cluster("512xselene").chip.name == "a100-80"
    assert (
        catalog.cluster(
            "8xh100", network=catalog.network("ethernet-100g")
        ).network.name
        == "ethernet-100g"
    )


WRONG_CLUSTERS = [
    ("h100", "such as '8xh100'"),
    ("8 H100", "such as '8xH100'"),
    ("h100x8", "such as '8xh100'"),
    ("0xh100", "between 1 and"),
    ("8x", "such as"),
    ("-8xh100", "such as"),
    ("8xh1000", "did you mean"),
    ("9" * 30 + "xh100", "between 1 and"),
    ("9" * 300 + "xh100", "such as"),
    ("", "such as"),
    ("8.5xh100", "such as"),
    ("8xh100\x00", "not known"),
    ("१xh100", "such as"),
]


@pytest.mark.parametrize(("text", "reason"), WRONG_CLUSTERS)
def test_wrong_clusters_are_sentences(text, reason):
    with refusal(reason):
        catalog.cluster(text)


def test_unknown_names_are_sentences():
    with refusal("chip 'h30' is not known; did you mean h"):
        catalog.chip("h30")
    with refusal("chip 'h10' is not known; did you mean h100-sxm"):
        catalog.chip("h10")
    with refusal("network 'selena' is not known; did you mean selene"):
        catalog.cluster("8xh100", network="selena")
    with refusal("model 'llama3-71b' is not known; did you mean llama3-70b"):
        catalog.model("llama3-71b")
    with refusal("catalogue 'chip' is not known"):
        catalog.names("chip")


def test_strangers_cannot_name_files(tmp_path):
    with refusal("not known"):
        resolve.model(str(tmp_path), files=False)
    with refusal("cannot be read"):
        resolve.model(str(tmp_path / "config.json"))


def test_unknown_names_are_answered_with_each_known_one_once():
    """A chip may lend its name to its network."""
    with refusal() as caught:
        catalog.cluster("8xwafer")
    known = (
        str(caught.value).split("known: ")[1].removesuffix(", ...").split(", ")
    )
    assert len(known) == len(set(known)) > 5


def test_a_size_that_no_network_has_is_asked_by_a_sweep() -> None:
    with refusal() as wrong:
        catalog.network("lbl-b200-nvs32")
    assert "lbl-b200-nvs64? Other sizes: " in str(wrong.value)
    assert str(wrong.value).endswith("--over network.nvlink.size=32")
    for name in ("foo7", "dgx-h300"):  # a generation is no size
        with refusal() as other:
            catalog.network(name)
        assert "Other sizes" not in str(other.value)


def test_a_card_of_a_network_names_its_fields_as_over_takes_them() -> None:
    fields = {row[0] for row in network_rows("lbl-b200-nvs8")}
    assert {"network.nvlink.size", "network.ib.bandwidth"} <= fields


def network_rows(name: str) -> list[tuple[str, ...]]:
    card = catalog_card("networks", name)
    (table,) = (item for item in card.items if isinstance(item, CardTable))
    return [tuple(map(str, row)) for row in table.rows]
