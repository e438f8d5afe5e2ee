"""What frameworks hold beside states and saved tensors, tensor by tensor, against counts by
hand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshwright import (
    Job,
    Layout,
    Prediction,
    catalog,
    predict,
)
from meshwright.count.model import parameters
from meshwright.describe.job import PRECISIONS, Optimizer
from meshwright.describe.software import Software
from meshwright.layout.placement import Nearest
from meshwright.step import oom
from meshwright.step.holding import parameter_bytes
from meshwright.step.memory import states
from meshwright.step.microbatch import model_cost
from meshwright.step.weights import Parameters, gather_messages

T, D, F, V, KV, L = 8192, 4096, 14336, 128256, 1024, 32
"""Llama-3-8B: tokens of a sequence, width, feed-forward, vocabulary, width of keys and of values,
layers.
"""
BF16, FP32 = 2, 4
LAYER = D * (D + 2 * KV) + D * D + 3 * D * F + 2 * D
"""Parameters of one layer: qkv, output projection, gate, up and down, two norms."""
ENDS = 2 * V * D + D
"""Parameters of embedding, head and final norm."""


PLAIN = Software()


def held(
    name: str = "megatron-core",
    model: str = "llama3-8b",
    software: Software = PLAIN,
    batch: int = 64,
    **more: Any,
) -> Prediction:
    """A run of that framework on 64 H100."""
    numbers = (
        {"precision": PRECISIONS[more.pop("precision")]}
        if "precision" in more
        else {}
    )
    layout = Layout(
        **{"dp": 64 // (more.get("tp", 1) * more.get("pp", 1)), **more}
    )
    job = Job(
        model,
        "64xh100-sxm",
        batch,
        layout,
        framework=name,
        software=software,
        **numbers,
    )
    return predict(job)


def part(p: Prediction, kind: str, name: str) -> float:
    """Bytes of one term of the tree; 0 if there is none."""
    term = p.memory_term.find(f"{kind}/{name}")
    return term.value if term else 0.0


@pytest.mark.parametrize(
    ("name", "software", "copies"),
    [
        (
            "megatron-core",
            Software(),
            {"logits": BF16, "exponentials and gradient": FP32},
        ),
        (
            "megatron-core",
            Software(loss="fused"),
            {"logits": BF16, "exponentials": FP32, "a new buffer": FP32},
        ),
        (
            "megatron-core",
            Software(loss="in place"),
            {"logits, and their gradient in their place": BF16},
        ),
        (
            "llm-foundry",
            Software(),
            {"logits": BF16, "their gradient": BF16},
        ),
        (
            "megatron-bridge",
            Software(),
            {"logits, and their gradient in their place": BF16},
        ),
        (
            "megatron-2021",
            Software(loss="passes"),
            {"logits": BF16, "exponentials and gradient": FP32},
        ),
        (
            "megatron-2021",
            Software(),
            {"logits": BF16, "exponentials": FP32, "gradient": FP32},
        ),
        ("torchtitan", Software(), {"logits": BF16, "their gradient": BF16}),
        (
            "fsdp",
            Software(),
            {
                "logits": BF16,
                "log-softmax": FP32,
                "its gradient": FP32,
                "gradient of the loss": FP32,
            },
        ),
        (
            "torchtitan",
            Software(loss="eager"),
            {
                "logits": BF16,
                "log-softmax": FP32,
                "its gradient": FP32,
                "of the loss": FP32,
            },
        ),
        (
            "unknown",
            Software(logits_gathered=True),
            {
                "logits": BF16,
                "whole": BF16,
                "log-softmax and two gradients": 3 * FP32,
            },
        ),
    ],
)
def test_logits_copy_by_copy(
    name: str, software: Software, copies: dict[str, int]
) -> None:
    """One microbatch of one sequence: T V logits."""
    assert (
        part(held(name, software=software), "activations", "logits and loss")
        == sum(copies.values()) * T * V
    )


@pytest.mark.parametrize(
    ("name", "software", "size"),
    [
        ("megatron-2021", Software(), (BF16 + 2 * FP32) * T * 251 * 128),
        (
            "unknown",
            Software(),
            (BF16 + 4 * FP32) * T * V / 4,
        ),  # zeros_like, exponentials, sum and product out of place
        # part, list, whole
        (
            "unknown",
            Software(logits_gathered=True),
            (3 * BF16 + 3 * FP32) * T * V,
        ),
    ],
)
def test_logits_over_four_ranks(
    name: str, software: Software, size: float
) -> None:
    """Cut four ways (by Megatron-LM in multiples of 128 rows), or gathered on each rank all the
    same: 4.5 times as much and more.
    """
    assert part(
        held(name, software=software, tp=4), "activations", "logits and loss"
    ) == pytest.approx(size)


@pytest.mark.parametrize(
    ("name", "precision", "each"),
    [
        ("megatron-core", "bf16", 4),
        ("megatron-core", "fp16", 2),
        ("megatron-core", "bf16-pure", 2),
        ("megatron-2021", "fp16", 2),
        (
            "megatron-deepspeed",
            "bf16-pure",
            2,
        ),  # engines before the BF16Optimizer
        (
            "megatron-deepspeed",
            "bf16",
            6,
        ),  # .grad in 16 bits and its fp32 accumulator
        ("megatron-deepspeed", "fp16", 2),
        ("deepspeed", "bf16", 2),
        ("fsdp", "fp16", 4),
        ("maxtext", "bf16", 4),
    ],
)
def test_bytes_of_a_gradient(name: str, precision: str, each: int) -> None:
    p = held(name, precision=precision)
    assert (
        p.memory_bytes["gradients"] == each * p.memory_bytes["weights"] / BF16
    )


@pytest.mark.parametrize("name", ["megatron-core", "megatron-2021"])
def test_gradients_are_as_wide_as_the_job_states_them(name: str) -> None:
    """--accumulate-allreduce-grads-in-fp32 beside --fp16, which by itself has 16-bit gradients."""
    own, wide = (
        held(name, precision="fp16", software=software)
        for software in (Software(), Software(gradients="fp32"))
    )
    assert wide.memory_bytes["gradients"] == 2 * own.memory_bytes["gradients"]
    assert wide.job.gradient_bytes == 2 * own.job.gradient_bytes == 4


@pytest.mark.parametrize(
    ("name", "zero", "more", "each"),
    [
        # the fp32 shard is the master: 4 + 8 + 4 of gradient, as `parallel.fully_shard` keeps
        ("torchtitan", 3, {}, (FP32, 8)),
        ("fsdp", 3, {}, (FP32, 8)),
        ("llm-foundry", 3, {}, (FP32, 8)),
        ("maxtext", 3, {}, (FP32, 8)),
        # whole weights that are gathered once lie beside it
        ("torchtitan", 2, {}, (64 * BF16, 12)),
        # Megatron Core and DeepSpeed shard a 16-bit weight and its master
        ("megatron-core", 3, {}, (BF16, 12)),
        ("deepspeed-zero3", 3, {}, (BF16, 12)),
        ("deepspeed", 3, {}, (BF16, 12)),
        # without a wider master the weight is what it was
        ("torchtitan", 3, {"optimizer": "adamw-no-master"}, (BF16, 8)),
        ("torchtitan", 3, {"precision": "fp32"}, (FP32, 8)),
        ("torchtitan", 3, {"precision": "fp8"}, (FP32, 8)),
    ],
)
def test_a_sharded_weight_is_kept_once_where_it_is_the_master(
    name: str, zero: int, more: dict[str, str], each: tuple[int, int]
) -> None:
    layout = Layout(dp=64, zero=zero)
    job = Job("llama3-8b", "64xh100-sxm", 64, layout, framework=name, **more)
    p = predict(job)
    mine = (L * LAYER + ENDS) / 64
    use = p.memory_bytes
    assert (use["weights"], use["optimizer"]) == pytest.approx(
        tuple(mine * x for x in each)
    )
    says = f"parameters x {each[1]} B, cut over 64 ranks"
    optimizer = p.memory_term.find("optimizer")
    assert optimizer and optimizer.formula == says


def test_an_update_writes_no_second_weight_where_the_shard_is_the_master() -> (
    None
):
    """Gradient read twice, 12 B read and written, 2 B of weight written or none."""
    for name, said in (
        ("torchtitan", "32 B of each"),
        ("megatron-core", "34 B"),
    ):
        term = held(name, zero=3).term.find("optimizer")
        assert term and said in term.formula, name


def test_fsdp_reduces_a_unit_from_the_numbers_of_its_products_and_jax_none() -> (
    None
):
    """ZeRO 3: weights of two layers, embedding and head, both or, where each is a unit, the head;
    one unit's gradient in 16 bits, none, or as accumulated.
    """
    head = V * D + D
    whole = BF16 * (2 * LAYER + ENDS)
    larger = BF16 * (2 * LAYER + head)
    found = {
        name: held(name, zero=3).memory_bytes["buffers"]
        for name in ("fsdp", "maxtext", "unknown")
    }
    assert found == pytest.approx(
        {
            "fsdp": whole + BF16 * ENDS,
            "maxtext": larger,
            "unknown": larger + FP32 * head,
        }
    )


def test_deepspeed_keeps_outputs_and_copies_gradients_to_a_bucket() -> None:
    """Four microbatches in flight on the first of four stages keep their outputs beside their
    inputs.
    """
    p, plain = (
        held(name, pp=4, zero=1, recompute="full")
        for name in ("megatron-deepspeed", "megatron-2021")
    )
    p, plain = (
        predict(replace(x.job, model=replace(x.job.model, vocab=1000)))
        for x in (p, plain)
    )
    assert part(p, "activations", "outputs of the stage") == 4 * T * D * BF16
    assert part(plain, "activations", "outputs of the stage") == 0
    assert part(p, "buffers", "bucket of gradients") == 5e8 * BF16
    accumulated = held("megatron-deepspeed", precision="bf16", zero=1)
    assert part(accumulated, "buffers", "bucket of gradients") == 5e8 * FP32


def test_copies_of_gradients_at_the_step() -> None:
    """DeepSpeed in 16 bits: 6 B for each parameter of the own partition in a new block, which
    nvidia-smi shows and a run does not need.
    """
    p = held("megatron-deepspeed", precision="bf16-pure", zero=1).memory_bytes
    own = p["weights"] / BF16 / 64
    assert p["device"] - p["reserved"] == pytest.approx(1.9e9)
    assert p["reserved"] - 1.05 * p["allocated"] == pytest.approx(6 * own)
    assert p["needed"] == pytest.approx(1.02 * p["allocated"] + 1.9e9)
    # in fp32: nothing is copied
    accumulated = held(
        "megatron-deepspeed", precision="bf16", zero=1
    ).memory_bytes
    assert accumulated["reserved"] == pytest.approx(
        1.05 * accumulated["allocated"]
    )


def test_the_step_is_the_fullest_moment_of_small_microbatches() -> None:
    """Megatron in fp16, one replica of a model with short sequences: 4 B a parameter are more than
    its activations.
    """
    job = held("megatron-2021", precision="fp16").job
    short = replace(
        job,
        seq=128,
        cluster=catalog.cluster("1xh100-sxm"),
        batch=1,
        layout=Layout(dp=1, recompute="full"),
    )
    p = predict(short)
    assert p.memory_bytes["activations"] == 0
    copies = part(p, "buffers", "gradients copied for the step")
    assert (
        copies
        == p.memory_bytes["buffers"]
        == pytest.approx(4 * p.memory_bytes["weights"] / BF16)
    )


def test_a_tpu_offers_what_xla_says() -> None:
    """GiB of its out-of-memory reports; a paper's set counts the memory on the package."""
    offered = {
        "tpu-v4": 30.75,
        "tpu-v5e": 15.75,
        "tpu-v6e": 31.25,
        "tpu-7x": 2 * 94.75,
    }
    for name, gib in offered.items():
        job = Job("llama3-8b", f"64x{name}", 64)
        assert oom.capacity(job) == pytest.approx(gib * 2**30)
        assert oom.own_bytes(job) == 0
        book = replace(
            job, assumptions="scaling-book-max", precision="bf16-pure"
        )
        assert oom.capacity(book) == job.cluster.chip.hbm_bytes


@pytest.mark.parametrize(
    ("name", "on", "precision", "scaling", "each"),
    [
        # one copy where products read any layout, else its transpose beside it
        ("megatron-bridge", "b200", "fp8", "tensorwise", 1),
        ("megatron-bridge", "h100-sxm", "fp8", "tensorwise", 2),
        ("megatron-bridge", "h100-sxm", "fp8", "delayed", 2),
        # along rows and along columns, a byte of scale for 32 or for 16
        ("megatron-bridge", "gb200", "fp8", "mxfp8", 2 * (1 + 1 / 32)),
        ("megatron-core", "h100-sxm", "fp8", "blockwise", 2),
        ("megatron-bridge", "b200", "fp4", None, 2 * (1 / 2 + 1 / 16)),
        ("megatron-core", "mi300x", "fp8", "tensorwise", 2),
        # quantised anew in every pass
        ("torchtitan", "h100-sxm", "fp8", "tensorwise", BF16),
        ("megatron-bridge", "b200", "bf16", None, BF16),
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_weights_as_products_find_them(
    name: str, on: str, precision: str, scaling: str, each: float, wide: bool
) -> None:
    """Where they are gathered narrow there is no wide one beside the narrow; those of embedding
    and head are never narrow.
    """
    numbers, zero = PRECISIONS[precision], 1 if name.startswith("mega") else 2
    if wide and precision != "bf16":
        numbers = replace(numbers, gather_bytes=2.0)
        each += BF16 if name.startswith("megatron") else 0
    p = predict(
        Job(
            "llama3-8b",
            f"8x{on}",
            64,
            Layout(dp=8, zero=zero),
            framework=name,
            software=Software(float8=scaling),
            precision=numbers,
        )
    )
    assert p.memory_bytes["weights"] == pytest.approx(
        L * LAYER * each + ENDS * BF16
    )


@pytest.mark.parametrize(
    ("name", "precision", "scaling", "zero", "each"),
    [
        ("megatron-bridge", "fp8", "tensorwise", 1, 1),
        ("megatron-bridge", "fp8", "delayed", 1, 1),
        # gathered in 16 bits, in the buffer of the gradients
        ("megatron-bridge", "fp8", "mxfp8", 1, 2),
        ("megatron-core", "fp8", "mxfp8", 2, 2),
        # two numbers in a byte
        ("megatron-bridge", "fp4", None, 1, 1 / 2),
        # Megatron-FSDP gathers what a pass finds
        ("megatron-core", "fp8", "mxfp8", 3, 1),
        ("megatron-bridge", "bf16", None, 1, 2),
        ("torchtitan", "fp8", "tensorwise", 3, 1),
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_weights_on_the_wire(
    name: str,
    precision: str,
    scaling: str,
    zero: int,
    each: float,
    wide: bool,
) -> None:
    """Megatron-LM, core/distributed/param_and_grad_buffer.py; wide: without --fp8-param-gather."""
    numbers = PRECISIONS[precision]
    if wide:
        numbers, each = replace(numbers, gather_bytes=2.0), 2.0
    job = Job(
        "llama3-8b",
        "8xb200",
        64,
        Layout(dp=8, zero=zero),
        framework=name,
        software=Software(float8=scaling),
        precision=numbers,
    )
    (sent,) = gather_messages(job, job.layout, Parameters(1e6, 0.0))
    assert sent.bytes == each * 1e6


def test_sharded_gradients_need_no_placeholders() -> None:
    """Products that add gradients up give autograd one; Megatron-FSDP's give it the gradient. One
    shard is none, two are."""
    for zero, dp, some in (
        (1, 64, True),
        (3, 64, False),
        (3, 2, False),
        (3, 1, True),
    ):
        p = held("megatron-bridge", zero=zero, dp=dp, tp=1)
        name = "placeholders of weight gradients"
        assert bool(part(p, "buffers", name)) == some


def oss(zero: int, name: str = "automodel", **more: Any) -> Prediction:
    """gpt-oss-120b, experts over 64 ranks."""
    layout = Layout(dp=64, zero=zero, sequence_parallel=False, **more)
    return predict(
        Job("gpt-oss-120b", "64xh100-sxm", 128, layout, framework=name)
    )


EXPERTS = 36 * 128 * (3 * 2880**2 + 3 * 2880)
"""Parameters of gpt-oss's experts: gate, up, down, each 2,880 x 2,880, and their biases."""


@pytest.mark.parametrize(
    ("zero", "ep", "dense", "expert"),
    [
        # shards in the numbers of the weights; experts of one rank alone, whole
        (3, 64, BF16 / 64, BF16),
        (2, 64, BF16 / 64, BF16),
        # whole gradients wait in fp32 to be summed, those of experts of one rank alone do not
        (1, 64, FP32, BF16),
        (1, 32, FP32, FP32),
        (3, 32, BF16 / 64, BF16 / 2),
    ],
)
def test_a_model_made_in_16_bits_has_moments_and_gradients_of_16(
    zero: int, ep: int, dense: float, expert: float
) -> None:
    """torch.optim's moments are as wide as the parameter; FSDP2 casts what it reduced in fp32."""
    p = oss(zero, ep=ep)
    use, whole = p.memory_bytes, parameters(p.job.model) - EXPERTS
    mine = EXPERTS / ep
    assert use["gradients"] == pytest.approx(whole * dense + mine * expert)
    shared = 64 / ep
    assert use["optimizer"] == pytest.approx(
        2 * BF16 * (whole / 64 + mine / shared)
    )


def test_bytes_that_an_optimizer_states_stay_as_they_are() -> None:
    """A name means what the framework has of it; numbers mean themselves."""
    job = oss(3, ep=64).job
    stated = replace(job, optimizer=Optimizer("fused-adam", 10.0, 2.0))
    assert (job.state_bytes, stated.state_bytes) == (4, 10)
    assert job.with_(framework="megatron-core").state_bytes == 12
    assert job.with_(precision="fp32").state_bytes == 8


def test_fewer_replicas_bound_gradients_that_are_narrow_with_one() -> None:
    """An interval of dp is bounded by its rows: no less than the bound is needed by any."""
    for zero in (0, 1):
        job = oss(zero, ep=1).job
        sizes = Parameters(1e9, 1e9)
        many = job.layout
        few = replace(many, dp=1)
        both = Nearest(**few.__getstate__(), high=many)
        each = parameter_bytes(job, zero)
        least = states(job, both, each, sizes)
        rows = (states(job, row, each, sizes) for row in (few, many))
        for row in rows:
            assert least.gradients <= row.gradients
            assert least.optimizer <= row.optimizer


def test_a_clamp_in_one_kernel_keeps_its_input_once() -> None:
    """Of 4 T copies of tokens the products keep D and F numbers and the activation 2 F, which a
    clamp in passes of its own keeps twice.
    """
    saved = {
        name: model_cost(p.job, p.job.layout).layers[0].saved
        for name in ("automodel", "torchtitan", "megatron-core")
        for p in [oss(3, name, ep=64)]
    }
    assert saved["torchtitan"] == saved["automodel"]
    twice = 4 * 4096 * 2 * 2880 * BF16
    assert saved["megatron-core"] - saved["automodel"] == twice


@pytest.mark.parametrize(
    ("name", "more", "copies"),
    [
        # a shard, its whole, the whole of its gradient and that gradient's shard
        ("megatron-bridge", {"tp": 4}, 1 / 4 + 2),
        # nothing is gathered for one rank
        ("megatron-bridge", {}, 1),
        # the input is kept whole, and counted as such; DTensor has its gradient twice
        ("torchtitan", {"tp": 4, "zero": 3}, 1 / 4 + 2),
    ],
)
def test_behind_the_loss_stands_the_gradient_of_the_input_of_the_head(
    name: str, more: dict[str, int], copies: float
) -> None:
    """The logits' gradient, in 16 bits, is there with it."""
    held_by = held(
        name,
        software=Software(loss="in place"),
        sequence_parallel=True,
        **more,
    )
    found = part(held_by, "activations", "gradient of the head's input")
    assert found == copies * T * D * BF16


def test_a_loss_that_holds_more_hides_what_comes_after_it() -> None:
    """Llama-3-8B: 12 bytes of each of 128,256 logits over tp beyond their gradient."""
    p = held("fsdp", zero=3)
    assert part(p, "activations", "gradient of the head's input") == 0


@pytest.mark.parametrize(
    ("exchange", "twice"), [("gather", 0), ("ring", 0), ("all-to-all", 1)]
)
@pytest.mark.parametrize(("cp", "tp"), [(4, 1), (2, 2), (1, 4)])
def test_an_output_that_was_sent_over_cp_is_kept_beside_what_was_sent(
    exchange: str, twice: int, cp: int, tp: int
) -> None:
    """TransformerEngine@d0067d0da, AttnFuncWithCPAndQKVOA2A: out_part is saved, what arrives of it
    is the input of the next product.
    """
    job = held("megatron-bridge", cp=cp, tp=tp, dp=64 // cp // tp).job
    sent, plain = (
        model_cost(job, replace(job.layout, cp_exchange=name)).layers[0].saved
        for name in (exchange, "gather")
    )
    assert sent - plain == twice * (cp > 1) * T / cp * D / tp * BF16
