"""What tp ranks gather in front of a product in FP8 and FP4: each quantises its shard of the
sequence, and the numbers travel with their scales.

By hand from NVIDIA/TransformerEngine@d0067d0da, pytorch/distributed.py and pytorch/module: 1 byte a
number of FP8 (MXFP8 a byte more for 32 of them, blockwise 4 for 128), half of one of NVFP4, with a
byte for 16. Of latent attention, who makes the latents: Megatron-LM and torchtitan (`count.latent`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout
from meshwright.cost import shapes
from meshwright.count import model
from meshwright.count.work import Op, Pass, Product
from meshwright.describe.framework import frameworks
from meshwright.describe.kernels import as_written
from meshwright.describe.layers import kinds
from meshwright.describe.software import Software
from meshwright.layout.placement import placed

TP, TOKENS, D = 4, 8192, 4096
WHOLE = TOKENS * D
NARROW = {
    "delayed": 1.0,
    "tensorwise": 1.0,
    "blockwise": 1 + 4 / 128,
    "mxfp8": 1 + 1 / 32,
    "nvfp4": 1 / 2 + 1 / 16,
}
IN_BLOCKS = ("blockwise", "mxfp8", "nvfp4")
LARGEST = ("all_reduce", "tp", 4.0)


def layer(
    recipe: str = "",
    framework: str = "megatron-core",
    sequence_parallel: bool = True,
    tp: int = TP,
    of: str = "llama3-8b",
) -> dict[str, Op]:
    """Operations of a model's first layer by name; recipe: of FP8 or FP4, empty for 16 bits."""
    numbers = {"": "bf16", "nvfp4": "fp4"}.get(recipe, "fp8")
    scaling = recipe if numbers == "fp8" else None
    layout = Layout(tp=tp, dp=1, sequence_parallel=sequence_parallel)
    job = Job(
        of,
        f"{tp}xb200",
        batch=1,
        seq=TOKENS,
        layout=layout,
        precision=numbers,
        framework=framework,
        software=Software(float8=scaling),
    )
    layout = placed(layout, (tp,))
    return {
        op.name: op for op in model.layer(job, layout, kinds(job.model)[0])
    }


def sent(work: Pass) -> list[tuple[str, str, object]]:
    return [(m.kind, m.axis, m.bytes) for m in work.comm]


def gather(one: float, numbers: float = WHOLE) -> tuple[str, str, float]:
    return "all_gather", "tp", numbers * one


SCATTER = ("reduce_scatter", "tp", WHOLE * 2.0)


@pytest.mark.parametrize("recipe", NARROW)
def test_ranks_gather_what_they_quantised(recipe: str) -> None:
    """An input once forward and once backward, one copy each; a gradient in both of its copies
    where scales belong to blocks. Sums travel in 16 bits. Where a scale belongs to the tensor, the
    largest value of all shards is known first."""
    ops, one = layer(recipe), NARROW[recipe]
    first = [LARGEST] if recipe in ("tensorwise", "nvfp4") else []
    for norm, wide, narrow in (
        ("attention/norm", "attention/qkv", "attention/out"),
        ("ffn/norm", "ffn/up", "ffn/down"),
    ):
        assert sent(ops[wide].forward) == [*first, gather(one)]
        assert sent(ops[wide].backward) == [gather(one), SCATTER]
        assert sent(ops[narrow].forward) == [SCATTER]
        copies = 2 if recipe in IN_BLOCKS else 1
        assert sent(ops[norm].backward) == [*first, gather(one * copies)]


@pytest.mark.parametrize("recipe", NARROW)
def test_latents_are_gathered_as_ranks_quantised_them(recipe: str) -> None:
    """Norm and matrix of what goes up are one module of Transformer Engine, as in front of a dense
    layer. The keys' part that is only turned is gathered in 16 bits, after what went down."""
    ops, one = layer(recipe, of="deepseek-v3"), NARROW[recipe]
    first = [LARGEST] if recipe in ("tensorwise", "nvfp4") else []
    for name, rank in (("q", 1536), ("kv", 512)):
        up = ops[f"attention/{name} up"]
        narrow = gather(one, TOKENS * rank)
        back = "reduce_scatter", "tp", TOKENS * rank * 2.0
        assert sent(up.forward) == [*first, narrow]
        assert sent(up.backward) == [narrow, back]
        assert up.forward.products[0].parts == TP
        assert sent(ops[f"attention/{name} norm"].forward) == []
    keys = ops["attention/kv down"]
    assert sent(keys.forward) == [gather(2.0, TOKENS * 64)]
    assert sent(keys.backward) == [("reduce_scatter", "tp", TOKENS * 64 * 2.0)]
    assert sent(ops["attention/q down"].forward) == []


def flops(op: Op) -> float:
    return float(op.forward.matrix)


@pytest.mark.parametrize(
    ("framework", "ranks"), [("megatron-core", TP), ("torchtitan", 1)]
)
def test_who_makes_the_latents(framework: str, ranks: int) -> None:
    """2 T k n FLOPs of a matrix from k to n features of T tokens, on each of TP ranks: Megatron
    Core's have a shard of the tokens, torchtitan's all of them; heads are cut in both."""
    ops = layer(framework=framework, of="deepseek-v3")
    D = 7168
    assert flops(ops["attention/q down"]) == 2 * TOKENS * D * 1536 / ranks
    assert flops(ops["attention/kv down"]) == 2 * TOKENS * D * 576 / ranks
    up = 2 * TOKENS * 1536 * 128 * 192 / TP
    assert flops(ops["attention/q up"]) == up
    x = TOKENS * 1536 / ranks
    assert ops["attention/q norm"].forward.vector == 9 * x


def test_torchtitan_gathers_the_hidden_state_of_latent_attention() -> None:
    """Once for queries, keys and values, and once back; nothing between the latents and the heads,
    which read all tokens."""
    ops = layer(framework="torchtitan", of="deepseek-v3")
    hidden = TOKENS * 7168
    first = ops["attention/q down"]
    assert sent(first.forward) == [gather(2.0, hidden)]
    assert sent(first.backward) == [("reduce_scatter", "tp", hidden * 2.0)]
    assert first.saved == hidden * 2.0
    for name in ("q norm", "q up", "kv down", "kv norm", "kv up"):
        op = ops[f"attention/{name}"]
        assert sent(op.forward) == sent(op.backward) == []
    assert ops["attention/q up"].saved == TOKENS * 1536 * 2.0
    assert ops["attention/kv down"].saved == 0


def test_what_ranks_with_all_tokens_add_up() -> None:
    """Without sequence parallelism nothing is gathered; the gradient is added up where heads read
    latents, or where the latents read the hidden state."""

    def back(framework: str) -> dict[str, list[tuple[str, str, object]]]:
        ops = layer(
            framework=framework, sequence_parallel=False, of="deepseek-v3"
        )
        assert not any(
            sent(op.forward) for name, op in ops.items() if " " in name
        )
        return {
            name.removeprefix("attention/"): sent(op.backward)
            for name, op in ops.items()
            if " " in name and sent(op.backward)
        }

    def summed(width: int) -> list[tuple[str, str, object]]:
        return [("all_reduce", "tp", TOKENS * width * 2.0)]

    narrow = {"q up": 1536, "kv up": 512, "kv down": 64}
    expected = {name: summed(width) for name, width in narrow.items()}
    assert back("megatron-core") == expected
    assert back("torchtitan") == {"q down": summed(7168)}


@pytest.mark.parametrize(
    ("recipe", "framework"),
    [("", "megatron-core"), ("tensorwise", "fsdp"), ("rowwise", "torchtitan")],
)
def test_other_programs_gather_activations_as_they_are(
    recipe: str, framework: str
) -> None:
    ops = layer(recipe, framework)
    assert sent(ops["ffn/up"].forward) == [gather(2.0)]
    assert sent(ops["ffn/norm"].backward) == [gather(2.0)]
    assert ops["ffn/up"].forward.products[0].parts == 1


def test_torchtitan_gathers_float8_of_one_scale() -> None:
    ops = layer("tensorwise", "torchtitan")
    assert sent(ops["ffn/up"].forward) == [LARGEST, gather(1.0)]
    assert sent(ops["ffn/up"].backward) == [SCATTER], "its input was kept"
    assert sent(ops["ffn/norm"].backward) == [LARGEST, gather(1.0)]


def test_nothing_is_gathered_without_sequence_parallelism() -> None:
    ops = layer("nvfp4", sequence_parallel=False)
    summed = [("all_reduce", "tp", WHOLE * 2.0)]
    assert sent(ops["ffn/up"].forward) == []
    assert sent(ops["ffn/down"].forward) == summed
    assert sent(ops["ffn/up"].backward) == summed
    assert ops["ffn/up"].forward.products[0].parts == 1


def test_a_rank_quantises_its_shard() -> None:
    """The input of a column-parallel matrix, the gradient of what a row-parallel one gives; each
    rank has its own features of the other two."""
    ops = layer("nvfp4")
    up, down = ops["ffn/up"], ops["ffn/down"]
    assert up.forward.products[0].parts == TP
    assert [p.parts for p in up.backward.products] == [1, TP]
    assert down.forward.products[0].parts == 1
    assert [p.parts for p in down.backward.products] == [TP, 1]
    [p] = up.forward.products
    quantised = shapes.quantised_elements(up.forward, p, once=True)
    assert quantised == TOKENS * D / TP
    back = shapes.quantised_elements(down.backward, down.backward.products[0])
    assert back == TOKENS * D / TP


def test_what_was_gathered_is_turned_for_products_along_columns() -> None:
    """Of a product of 100 tokens from 20 to 30 features whose input and gradient two ranks
    gathered."""
    forward = Product(30.0, 20.0, 100.0, parts=2.0)
    d_input = Product(20.0, 30.0, 100.0, backward=True, parts=2.0)
    d_weight = Product(
        20.0, 30.0, 100.0, weight_gradient=True, backward=True, parts=2.0
    )
    assert shapes.turned_elements(forward) == 0
    assert shapes.turned_elements(d_input) == 100 * 30
    assert shapes.turned_elements(d_weight) == 100 * 20
    assert shapes.turned_elements(d_weight._replace(parts=1.0)) == 0


@pytest.mark.parametrize(
    ("law", "recipe", "turned"),
    [
        ("h100", "delayed", 2.0),
        ("b200", "delayed", 0.0),
        ("b200", "mxfp8", 0.0),
        ("gb300", "nvfp4", 2 * (1 / 2 + 1 / 16)),
    ],
)
def test_bytes_of_turning(law: str, recipe: str, turned: float) -> None:
    """Read and written once, where the chip's products do not read rows either way."""
    assert as_written()[law].turned.get(recipe, 0.0) == turned


def test_a_recipe_is_asked_of_narrow_products_only() -> None:
    job = Job("llama3-8b", "8xb200", batch=8, precision="fp8")
    assert job.recipe == frameworks()["megatron-core"].float8 == "tensorwise"
    own = replace(job, software=Software(float8="mxfp8"))
    assert own.recipe == "mxfp8"
    assert replace(job, precision="fp4").recipe == "nvfp4"
    assert replace(job, precision="bf16").recipe == ""
    papers = replace(job, assumptions="lbl-2024", precision="fp8")
    assert papers.recipe == ""
