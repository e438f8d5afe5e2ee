"""The questions of the corpus (`tests/tools/corpus.py`): seeded command lines of every kind of job,
layout and set.

Drawn once and then kept in the corpus file, so that later changes here do not change what is asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

Ask = Callable[[str], dict | str]
"""Command line -> the fields of its JSON, or the sentence of a refusal."""

SETS = (
    "realistic",
    "pytorch",
    "lbl-2024",
    "lbl-2024-code",
    "megatron-2021",
    "epoch-2024",
    "scaling-book-sum",
    "scaling-book-max",
)
MODELS = {
    "dense": (
        "llama3-8b",
        "llama3-70b",
        "llama3-405b",
        "gpt3-175b",
        "qwen3-32b",
        "gpt2-xl",
        "olmo2-13b",
    ),
    "windows": (
        "gemma3-27b",
        "gemma2-9b",
        "mistral-7b",
        "gpt-oss-20b",
        "gpt-oss-120b",
    ),
    "moe": (
        "mixtral-8x7b",
        "mixtral-8x22b",
        "qwen3-30b-a3b",
        "qwen3-235b-a22b",
        "glm4.5-air",
    ),
    "mla": ("deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "kimi-k2"),
    "odd": (
        "megatron-18.4b",
        "falcon-40b",
        "bloom-176b",
        "phi4",
        "llama3.2-1b",
        "gpt3-1t",
    ),
}
CLUSTERS = {
    "switched": (
        "h100-sxm",
        "a100-80",
        "h200",
        "b200",
        "superpod-h100",
        "gcp-a3-mega",
        "lbl-b200",
        "ethernet-100g",
    ),
    "selene": ("selene", "v100-32", "h800", "jean-zay-a100"),
    "torus": ("tpu-v4", "tpu-v5p", "tpu-v5e", "tpu-v6e", "tpu-7x"),
    "mesh": ("mi300x", "mi250x"),
    "nvl72": ("gb200", "gb300"),
}
CHIPS = (1, 8, 48, 64, 96, 128, 256, 1024, 4096)
REPLICAS = (1, 2, 3, 4, 8, 16, 32, 64)
MOST_CHIPS = 8192
SCHEDULES = (
    "gpipe",
    "1f1b",
    "1f1b",
    "interleaved",
    "zb-h1",
    "zb-h2",
    "interleaved-zb",
    "zbv",
    "dualpipev",
)
CHUNKED = ("interleaved", "interleaved-zb")
PLAIN = {
    "tp": 1,
    "cp": 1,
    "pp": 1,
    "microbatch": 1,
    "zero": 0,
    "interleave": 1,
    "recompute": "none",
    "ep": 1,
    "etp": 1,
}
"""What need not be said."""
HIERARCHY = ("h100-sxm", "a100-80", "v100-32")
"""Chips whose memory levels Epoch's set needs."""
REFUSED_SHARE = 0.06
"""Of the steps: that the sentence stays is worth a look too."""

PLANS = (
    "plan llama3-70b --on 1024xh100-sxm --batch 4Mi",
    "plan llama3-8b --on 64xh100-sxm --batch 1Mi",
    "plan llama3-405b --on 2048xh100-sxm --batch 2048seq --pp 1..16",
    "plan llama3-70b --on 100xh100-sxm --batch 1000seq",
    "plan llama3-8b --on 24xa100-80 --batch 250seq --relaxed",
    "plan gpt3-175b --on 1024xselene --batch 1536seq --assumptions lbl-2024",
    "plan gpt3-1t --on 3072xlbl-b200 --batch 4096seq --precision fp16 --assumptions lbl-2024",
    (
        "plan gpt3-1t --on 512xlbl-a100 --batch 4096seq --precision fp16 --scheme summa"
        " --assumptions lbl-2024"
    ),
    "plan gpt3-175b --on 512xa100-80 --batch 1536seq --assumptions megatron-2021",
    "plan llama3-70b --on 512xh100-sxm --batch 4Mi --assumptions epoch-2024",
    "plan llama3-70b --on 1024xtpu-v5p --batch 4Mi --assumptions scaling-book-sum",
    "plan llama3-70b --on 512xtpu-v5p --batch 4Mi",
    "plan llama3-8b --on 256xtpu-v5e --batch 4Mi --zero 0,1,3",
    "plan gemma3-27b --on 128xtpu-v6e --batch 1Mi",
    "plan gemma3-27b --on 64xh200 --batch 64seq --seq 131072",
    "plan gpt-oss-120b --on 64xh100-sxm --batch 512seq",
    "plan mixtral-8x7b --on 64xmi300x --batch 1Mi",
    "plan mixtral-8x22b --on 256xh100-sxm --batch 1024seq",
    "plan deepseek-v3 --on 512xh800 --batch 15360seq --zero 1 --tp 1 --pp 8,16",
    "plan deepseek-v2-lite --on 72xgb200 --batch 576seq",
    "plan qwen3-235b-a22b --on 144xgb300 --batch 1152seq --zero 1,3",
    "plan qwen3-30b-a3b --on 32xh100-sxm --batch 256seq --recompute none,full",
    "plan falcon-40b --on 384xa100-40 --batch 1152seq",
    "plan llama3-8b --on 1xh100-sxm --batch 8seq",
    "plan gpt2-xl --on 16xa100-40 --batch 512seq --attention-kernel unfused --schedule gpipe,1f1b",
)

LIMITS = (
    "limits v100",
    "limits a100",
    "limits h100",
    "limits h100/sparse",
    "limits h100-low-latency --months 6",
    "limits h100-global-nvlink",
    "limits h100-deepseek/sparse --failures",
    "limits h100-fixed --overlap",
)


def steps(seed: int, ask: Ask, count: int) -> Iterator[tuple[str, dict | str]]:
    """So many steps with their answers, evenly over the sets, models and networks; a small part is
    refused.
    """
    rng, kept, refused = random.Random(seed), 0, 0
    while kept < count:
        line = _step(
            rng, SETS[kept % len(SETS)] if rng.random() < 0.6 else "realistic"
        )
        found = ask(line)
        if isinstance(found, str):
            if refused >= REFUSED_SHARE * (kept + 1):
                continue
            refused += 1
        elif rng.random() < 0.3 and (
            other := _placed_otherwise(rng, found["layout"]["placement"])
        ):
            moved = ask(f"{line} --placement {other}")
            line, found = (
                (line, found)
                if isinstance(moved, str)
                else (f"{line} --placement {other}", moved)
            )
        kept += 1
        yield line, found


def _step(rng: random.Random, assumptions: str) -> str:
    """A command line of `predict`."""
    kind = rng.choice(list(MODELS))
    chip = rng.choice(
        HIERARCHY
        if assumptions == "epoch-2024"
        else CLUSTERS[rng.choice(list(CLUSTERS))]
    )
    summa = kind in ("dense", "odd") and rng.random() < 0.12
    tp, cp = rng.choice((1, 2, 4, 8, 8, 16)), rng.choice((1, 1, 1, 2, 4))
    pp = rng.choice((1, 1, 2, 3, 4, 6, 8, 16))
    chips = tp * cp * pp * rng.choice(REPLICAS)
    if chips > MOST_CHIPS or rng.random() < 0.15:  # some are idle, or too few
        chips = rng.choice(CHIPS)
    dp = max(chips // (tp * cp * pp), 1)
    schedule = rng.choice(SCHEDULES)
    flags = {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "dp": dp,
        "microbatch": rng.choice((1, 1, 2, 4)),
        "zero": rng.choice((0, 1, 2, 3)),
        "schedule": schedule,
        "interleave": rng.choice((2, 3, 4)) if schedule in CHUNKED else 1,
        "recompute": rng.choice(("none", "selective", "full")),
    }
    if kind in ("moe", "mla"):
        flags["ep"] = rng.choice((1, 2, 4, 8, 16, 64))
        flags["etp"] = rng.choice((1, 1, 1, tp))
    elif rng.random() < 0.3:
        flags["sequence-parallel"] = "false"
    if summa:
        flags |= {"scheme": "summa", "panels": rng.choice((8, 16, 32))}
    elif rng.random() < 0.05:
        flags["scheme"] = "context"
    batch = dp * flags["microbatch"] * rng.choice((1, 2, 4, 8, 16, 32)) + (
        rng.random() < 0.15
    )
    words = [
        f"predict {rng.choice(MODELS[kind])} --on {chips}x{chip} --batch {batch}seq --assumptions"
        f" {assumptions}"
    ]
    words += [
        f"--{name} {value}"
        for name, value in flags.items()
        if value != PLAIN.get(name)
    ]
    return " ".join([*words, *_numbers(rng)])


def _numbers(rng: random.Random) -> Iterator[str]:
    """Now and then another sequence length, precision, optimizer or attention kernel."""
    if rng.random() < 0.15:
        yield f"--seq {rng.choice((1024, 16384, 65536, 131072))}"
    if rng.random() < 0.25:
        yield f"--precision {rng.choice(('fp16', 'bf16-pure', 'fp8', 'fp32'))}"
    if rng.random() < 0.2:
        yield f"--optimizer {rng.choice(('sgd', 'adafactor', 'adamw-no-master'))}"
    if rng.random() < 0.15:
        yield "--attention-kernel unfused"


def _placed_otherwise(
    rng: random.Random, placement: dict[str, list[float]]
) -> str:
    """The same degrees with the axes nearest in another order; "" where there is only one
    dimension.
    """
    axes, dims = list(placement), len(next(iter(placement.values())))
    if dims < 2 or any(
        n != int(n) for shares in placement.values() for n in shares
    ):
        return ""
    room, left = [1] * dims, dict.fromkeys(axes, 1)
    for axis, shares in placement.items():
        for i, n in enumerate(shares):
            room[i], left[axis] = room[i] * int(n), left[axis] * int(n)
    rng.shuffle(axes)
    found = {}
    for axis in axes:
        shares = []
        for i in range(dims - 1):
            take = next(
                d
                for d in range(min(room[i], left[axis]), 0, -1)
                if left[axis] % d == 0 and room[i] % d == 0
            )
            shares.append(take)
            room[i], left[axis] = room[i] // take, left[axis] // take
        found[axis] = [*shares, left[axis]]
    text = ",".join(
        f"{axis}={'x'.join(map(str, shares))}"
        for axis, shares in found.items()
    )
    return (
        text
        if found != {a: [int(n) for n in s] for a, s in placement.items()}
        else ""
    )


def rooflines(seed: int, count: int) -> Iterator[str]:
    """Command lines of `roofline`."""
    rng = random.Random(seed)
    chips = {
        "tpu-v5p": (512, 4096, 8960),
        "tpu-v5e": (64, 256, 512),
        "tpu-v4": (64, 1024),
        "h100-sxm": (64, 1024),
        "gb200": (72, 576),
        "mi300x": (64,),
        "b200": (256,),
    }
    for _ in range(count):
        chip = rng.choice(list(chips))
        model = rng.choice(
            (
                "llama3-70b",
                "llama3-8b",
                "gpt3-175b",
                "mixtral-8x7b",
                "gemma3-27b",
                "deepseek-v3",
            )
        )
        words = [
            f"roofline {model} --on {rng.choice(chips[chip])}x{chip} --batch"
            f" {rng.choice(('1M', '4M', '16M'))}"
        ]
        words += [
            f"--layer {rng.choice(('book', 'mlp', 'projections', 'block'))}"
        ] * (rng.random() < 0.5)
        words += ["--shorthand"] * (rng.random() < 0.3)
        words += [f"--context {rng.choice((2, 4))}"] * (rng.random() < 0.3)
        words += [
            f"--assumptions {rng.choice(('realistic', 'scaling-book-max'))}"
        ] * (rng.random() < 0.3)
        yield " ".join(words)
