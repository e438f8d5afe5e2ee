"""A weight matrix: what its gradient moves with one and with several microbatches, and what low
precision keeps.
"""

from dataclasses import replace

import pytest

from layouts import cut
from meshwright import Job, Layout, predict
from meshwright.cost.layer import Timer
from meshwright.cost.shapes import kernel_seconds, rates
from meshwright.count.linear import linear
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.describe.assumptions import REALISTIC, ChipTime
from meshwright.describe.frozen import with_values
from meshwright.describe.job import PRECISIONS
from meshwright.describe.software import Software
from meshwright.layout.placement import placed
from meshwright.step import clock_of

T, K, N = 256.0, 4096.0, 16384.0
TOKENS = (T * K + T * N) * 2
"""Bytes of X and Y in 16 bits."""


def job(batch=8, **fields):
    return Job("llama3-8b", "8xh100-sxm", batch, **fields)


HALF, COPIED, WIDE = 2 + 2 + 2, (2 + 4) + (4 + 4 + 4), 2 + 4 + 4
"""Both read, their sum written; copied to 32 bits, added up there; added to 32 bits."""


@pytest.mark.parametrize(
    ("framework", "batch", "gradients", "bytes_per_weight"),
    [
        ("megatron-deepspeed", 4, "half", 0),  # m = 1: nothing to add to
        ("megatron-deepspeed", 8, "half", HALF),
        ("megatron-deepspeed", 8, "fp32", COPIED),
        ("megatron-deepspeed", 4, "fp32", COPIED),  # there even with m = 1
        ("megatron-2021", 4, "half", 0),
        ("megatron-2021", 8, "half", HALF),
        ("megatron-2021", 8, "fp32", WIDE),
        ("megatron-2021", 4, "fp32", WIDE),
    ],
)
def test_autograd_adds_up_gradients_in_a_pass_of_its_own(
    framework, batch, gradients, bytes_per_weight
):
    run = job(
        batch,
        framework=framework,
        software=Software(gradients=gradients),
    )
    d_input, d_weight = linear(
        DeviceMicrobatch.from_layout(run, Layout(dp=4)), "x", T, K, N
    ).backward.parts
    product, added = d_weight.parts
    assert product.memory == TOKENS + 2 * K * N
    assert added.memory == bytes_per_weight * K * N and not added.products
    assert d_weight.memory == product.memory + added.memory
    assert d_weight.matrix == d_input.matrix == 2 * T * K * N


def test_adding_up_takes_what_it_moves_whatever_else_is_fused():
    """The sum is a kernel of its own: bytes over the bandwidth that passes reach, and no factor of
    the framework. Added up by the product, 4 + 4 bytes hide behind its arithmetic, though less than
    what it reads at its start.
    """
    run = job(batch=64, framework="megatron-deepspeed")
    fused = job(batch=64, framework="megatron-core")
    stack = with_values(run.how.chip.stack, elementwise=1.3)
    slow = with_values(run.how.chip, stack=stack)
    tokens = 8192.0  # enough that neither product waits for memory
    how = rates(run.cluster.chip, "bf16", "bf16", slow)
    found, plain = (
        sum(
            kernel_seconds(
                linear(
                    DeviceMicrobatch.from_layout(of, Layout(dp=4)),
                    "x",
                    tokens,
                    K,
                    N,
                ).backward.parts[1],
                how,
            )
        )
        for of in (run, fused)
    )
    written = -how.law.added * 2 * K * N / how.memory
    sums = how.law.added_sums * (4 + 4) * K * N / how.memory
    assert found - plain == pytest.approx(
        how.law.launch_s + 6 * K * N / how.memory - written - sums
    )


def test_input_and_weight_gradient_wait_for_memory_each_by_itself():
    """256 tokens on a roofline: dX (2 B a weight) is bound by arithmetic; dW (8 B) is not, and
    cannot hide behind it.
    """
    run = job(assumptions=replace(REALISTIC, chip=ChipTime("roofline")))
    layout = placed(Layout(dp=4), run.cluster.sizes)
    timer = Timer(clock_of(run), layout)
    how = timer.clock.rates
    op = linear(DeviceMicrobatch.from_layout(run, layout), "x", T, K, N)
    arithmetic = how.launch_s + 2 * T * K * N / how.matrix
    d_input = max(arithmetic, (TOKENS + 2 * K * N) / how.memory)
    d_weight = max(arithmetic, (TOKENS + 8 * K * N) / how.memory)
    assert d_weight > arithmetic
    half = timer.pass_cost(op, op.backward).time
    assert half.compute == pytest.approx(2 * arithmetic)
    assert half.compute + half.memory == pytest.approx(d_input + d_weight)
    assert timer.layer([op]).weight_pass == pytest.approx(d_weight)


BLOCKS = {"fp8": 1 + 1 / 32, "fp4": 0.5 + 1 / 16}


@pytest.mark.parametrize(("precision", "bytes_"), BLOCKS.items())
def test_low_precision_saves_only_on_inputs_of_linear_layers(
    precision, bytes_
):
    """One layer of Llama 3 8B, b s tokens: inputs of qkv, up and down shrink; q, k, v, o, norms,
    gate and up do not.
    """
    from meshwright.count.megatron import megatron_layer
    from meshwright.describe.layers import Kind

    def saved(precision):
        ops = megatron_layer(
            DeviceMicrobatch.from_layout(
                job(precision=PRECISIONS[precision]),
                placed(Layout(dp=1), (8, 1)),
            ),
            Kind(None, False),
        )
        return {op.name: op.saved for op in ops}

    wide, narrow = saved("bf16"), saved(precision)
    changed = {name for name in wide if wide[name] != narrow[name]}
    assert changed == {"attention/qkv", "ffn/up", "ffn/down"}
    tokens = 8192.0
    assert sum(wide.values()) - sum(narrow.values()) == pytest.approx(
        tokens * (4096 + 4096 + 14336) * (2 - bytes_)
    )


def test_sixteen_bits_keep_what_they_kept():
    assert (
        PRECISIONS["bf16"].kept_input_bytes
        == PRECISIONS["bf16"].activation_bytes
    )
    wider = replace(PRECISIONS["bf16"], activation_bytes=4.0)
    assert wider.kept_input_bytes == 4.0


def test_nvfp4_recipe_of_llama3_8b_on_8_b200_fits():
    """Megatron-Bridge's llama3_8b_pretrain_8gpu_b200_nvfp4_config: microbatch 4, 2-byte gradients
    (Apache-2.0).

    It fits where running out is the less likely: what is needed is less than there is (`headroom`
    0.5).
    """
    run = Job(
        "llama3-8b",
        "8xb200",
        128,
        precision="fp4-pure",
        headroom=0.5,
    )
    layout = cut("dp8 zero1 microbatch4")
    assert predict(run, layout).fits
    assert not predict(
        replace(run, precision=PRECISIONS["bf16-pure"]), layout
    ).fits
