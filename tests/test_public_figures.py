"""Figures that makers of models published, none of which any number was fitted to: inside the
interval and foreseen to fit, or named here as what cannot be expressed.

Each is the layout that was published; docs/plan.md has the commands.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from layouts import cut
from meshwright import Job, Layout, Optimizer, Prediction, predict
from meshwright.describe.software import Software
from refusals import refusal


def mfu(p: Prediction) -> tuple[float, float]:
    """Where nine of ten runs lie."""
    low, high = p.interval_s
    return p.mfu * p.step_time_s / high, p.mfu * p.step_time_s / low


def hours(p: Prediction) -> tuple[float, float]:
    """Thousands of chip-hours for 10^12 tokens."""
    low, high = (s / p.step_time_s for s in p.interval_s)
    expected = 1e12 / p.tokens_per_s_per_chip / 3600 / 1e3
    return expected * low, expected * high


def tokens(p: Prediction) -> tuple[float, float]:
    """Tokens a second and chip."""
    low, high = (s / p.step_time_s for s in p.interval_s)
    return p.tokens_per_s_per_chip / high, p.tokens_per_s_per_chip / low


INSIDE = {
    "PaLM 540B, 46.2 % (Chowdhery et al. 2022, table 3)": (
        ("palm-540b", "6144xtpu-v4", 2048, {}),
        Layout(
            tp=12,
            dp=512,
            dp_replicate=2,
            zero=3,
            recompute="full",
            scheme="gspmd",
        ),
        (mfu, 0.462),
    ),
    "GPT-3 175B on 64 A100, 51.4 % (Korthikanti et al. 2022, table 5)": (
        (
            "gpt3-175b",
            "64xa100-80",
            64,
            {
                "framework": "megatron-2021",
                # Megatron-LM of 2022-05 (83b1e42f and --async-tensor-model-parallel-allreduce)
                "software": Software(
                    weight_gradient="apart", tp_overlap="backward"
                ),
            },
        ),
        Layout(
            tp=8,
            pp=8,
            schedule="interleaved",
            interleave=3,
            recompute="selective",
        ),
        (mfu, 0.514),
    ),
    "Llama 2 7B, 184,320 h for 2e12 tokens (Touvron et al. 2023, table 2)": (
        ("llama2-7b", "512xa100-80", 1024, {"framework": "fsdp"}),
        cut("dp512 zero3 full"),
        (hours, 184.32 / 2),
    ),
    "Llama 2 70B, 1,720,320 h for 2e12 tokens (Touvron et al. 2023, table 2)": (
        ("llama2-70b", "2048xa100-80", 1024, {}),
        cut("tp8 pp8 dp32 zero1"),
        (hours, 1720.32 / 2),
    ),
    # 128 sequences in 5.4 to 5.9 s; 228 TFLOP/s at 5.72 s are those of sequences of 2,048
    "Mixtral 8x7B on 16 H100, 5.65 s (Megatron-LM issue 756, second run)": (
        ("mixtral-8x7b", "16xh100-sxm", 128, {"seq": 2048}),
        cut("tp2 dp8 ep8 etp2 zero1"),
        (tokens, 128 * 2048 / 5.65 / 16),
    ),
    "Llama 3 8B on 8 H100 of 96 GB, 5,762 tokens/s (torchtitan, eager)": (
        ("llama3-8b", "8xh100-96-hbm2e", 8, {"framework": "fsdp"}),
        cut("dp8 zero3 op"),
        (tokens, 5762),
    ),
    "Llama 3 8B on 8 H100 of 96 GB, 6,667 tokens/s (torchtitan, compiled)": (
        ("llama3-8b", "8xh100-96-hbm2e", 16, {"framework": "torchtitan"}),
        cut("dp8 zero3 microbatch2 op"),
        (tokens, 6667),
    ),
}


@pytest.mark.parametrize("name", INSIDE)
def test_a_published_figure_lies_inside_the_interval_and_its_run_fits(
    name: str,
) -> None:
    (model, on, batch, more), layout, (what, published) = INSIDE[name]
    p = predict(Job(model, on, batch, **more), layout)
    low, high = what(p)
    assert low <= published <= high
    assert p.fits, "it ran"


NOT_EXPRESSED = {
    "Llama 3 405B, 8,192 tokens: 41 %; its layers are dealt unevenly over 16 stages, its pipeline"
    " holds fewer microbatches than 1F1B, and what it shards of gradients is between ZeRO-1 and 2": (
        ("llama3-405b", "16384xh100-sxm", 2048, {}),
        cut("tp8 pp16 dp128 zero2 interleave8 interleaved"),
        (mfu, 0.41),
    ),
    "DeepSeek-V3: 180 k hours for 1e12 tokens; DualPipe with two copies of the weights, the input of"
    " SwiGLU in FP8": (
        (
            "deepseek-v3",
            "2048xh800",
            15360,
            {
                "precision": "fp8",
                "optimizer": Optimizer(state_bytes=8),  # moments in bf16
            },
        ),
        cut("pp16 dp128 ep64 zero1 dualpipe layernorm+mla_up_proj"),
        (hours, 180.0),
    ),
}


@pytest.mark.parametrize("name", NOT_EXPRESSED)
def test_what_cannot_be_expressed_is_foreseen_not_to_fit(name: str) -> None:
    """The nearest layout that can be: when one of these fits, it belongs to the others."""
    (model, on, batch, more), layout, _ = NOT_EXPRESSED[name]
    assert not predict(Job(model, on, batch, **more), layout).fits


@pytest.mark.parametrize(
    ("dp", "cp", "seq", "gib"),
    [(8, 1, 32768, 75.3), (4, 2, 65536, 75.9), (2, 4, 131072, 77.1)],
)
def test_pipelines_of_torchtitan_hold_whole_gradients(
    dp: int, cp: int, seq: int, gib: float
) -> None:
    """Llama 3.1 405B on 512 H100, tp 8 pp 8, FP8, full recomputation, 8 sequences a replica:
    torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 6. Sharded gradients would be a
    third less.
    """
    layout = Layout(tp=8, pp=8, dp=dp, cp=cp, zero=1, recompute="full")
    job = Job(
        "llama3-405b",
        "512xh100-sxm",
        8 * dp,
        seq=seq,
        precision="fp8",
        framework="torchtitan",
    )
    found = predict(job, layout).memory_bytes["reserved"]
    assert found / 2**30 == pytest.approx(gib, rel=0.1)
    for zero in (2, 3):
        with refusal("whole until the last microbatch"):
            predict(job, replace(layout, zero=zero))
