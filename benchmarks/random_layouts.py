"""Random layouts of seven families beside transformers: the loss of each step, and every tensor of
the first gradient.

    python benchmarks/random_layouts.py [--layouts 60] [--seed 1] [-o benchmarks/random_layouts.md]

A family's model of transformers (eager attention, random weights) trains six steps of random tokens
in one process with PyTorch's AdamW, and the trainer does the same from the same weights under a
layout drawn at random, on up to eight gloo ranks in fp32. The first gradient is what the first
checkpoint holds as its mean. A row is written as soon as it is there, and a start after an
interruption goes on behind the last one.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as fn

from meshwright import Chip, Cluster, Job, Layout, Network
from meshwright.describe.network import Dim
from meshwright.describe.training import Settings
from meshwright.errors import BadInput
from meshwright.formats.hf import load_hf
from meshwright.formats.run_folder import metrics
from meshwright.train import rules, run, texts, weights
from meshwright.train.export import whole_tensor
from meshwright.train.feed import source
from meshwright.train.initial import parameters
from meshwright.train.launch import fork_ranks
from meshwright.train.loop import rate
from meshwright.train.model import Decoder
from meshwright.train.storage import Reader, read_index

BATCH, SEQ, STEPS, BOUND = 16, 64, 6, 2e-6
SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "vocab_size": 256,
    "max_position_embeddings": SEQ,
    "tie_word_embeddings": False,
}
MOE = {"num_experts_per_tok": 2, "output_router_logits": False}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SMALL,
    "llama tied": {**SMALL, "tie_word_embeddings": True},
    "qwen3": {**SMALL, "head_dim": 24, "tie_word_embeddings": True},
    "mistral": {**SMALL, "sliding_window": 24},
    "mixtral": {
        **SMALL,
        **MOE,
        "num_local_experts": 4,
        "sliding_window": None,
    },
    "qwen3_moe": {
        **SMALL,
        **MOE,
        "num_experts": 4,
        "moe_intermediate_size": 48,
        "norm_topk_prob": True,
        "head_dim": 16,
    },
    "gpt2": {
        "n_embd": 64,
        "n_layer": 6,
        "n_head": 4,
        "vocab_size": 256,
        "n_positions": SEQ,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
}
"""Family -> its keys of config.json."""
SCHEDULES = (
    "gpipe",
    "1f1b",
    "interleaved",
    "interleaved-zb",
    "zbv",
    "dualpipev",
)


def settings(folder: Path, output: str) -> Settings:
    """Clipping binds, and each step is kept."""
    return Settings(
        steps=STEPS,
        lr=1e-2,
        warmup=2,
        clip=0.5,
        data=str(folder / "tokens"),
        weights=str(folder / "model"),
        output=output,
        save_every=1,
        keep=STEPS,
        check_every=2,
        record=None,
        timeout=300,
    )


def job(folder: Path, layout: Layout) -> Job:
    """The family's model on as many CPUs as the layout has ranks."""
    chip = Chip("cpu", {"fp32": 1e11}, 2e9, 2**33, 1.5e10)
    network = Network("gloo", (Dim("host", 2e9, 1e-4),))
    m = replace(load_hf(folder / "model"), dropout=False)
    return Job(
        m,
        Cluster(chip, network, int(layout.chips)),
        BATCH,
        layout,
        seq=SEQ,
        precision="fp32",
        framework="meshwright",
    )


def made(family: str, folder: Path, seed: int, device: torch.device) -> None:
    """The model of transformers, its losses, and its first gradient under the same names."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    kind = family.split()[0]
    config = AutoConfig.for_model(kind, **FAMILIES[family])
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager"
    )
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name or "ln_" in name:  # ones tell too little
                p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(folder / "model")
    ids = np.random.default_rng(seed).integers(0, 256, BATCH * SEQ * STEPS + 1)
    texts.write(folder / "tokens", [ids], 256, "bytes", "random")
    s = settings(folder, "none")
    samples = source(job(folder, Layout(dp=1)), s)
    norms = [
        p
        for name, p in model.named_parameters()
        if name.endswith("bias") or "norm" in name or "ln_" in name
    ]
    apart = {id(p) for p in norms}
    matrices = [p for p in model.parameters() if id(p) not in apart]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": s.weight_decay},
            {"params": norms, "weight_decay": 0.0},
        ],
        betas=(s.beta1, s.beta2),
        eps=s.epsilon,
    )
    losses = []
    for step in range(STEPS):
        rows = torch.from_numpy(samples.samples(step * BATCH, BATCH))
        optimizer.zero_grad()
        logits = model(rows[:, :-1]).logits
        loss = fn.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), s.clip)
        if step == 0:
            kept(model, folder)
        for group in optimizer.param_groups:
            group["lr"] = rate(s, step)
        optimizer.step()
        losses.append(loss.item())
    (folder / "losses.json").write_text(json.dumps(losses))


def kept(model: Any, folder: Path) -> None:
    """The clipped gradient as a folder of weights."""
    with torch.no_grad():
        values = {
            name: p.detach().clone() for name, p in model.named_parameters()
        }
        for p in model.parameters():
            p.copy_(p.grad)
        model.save_pretrained(folder / "gradient")
        for name, p in model.named_parameters():
            p.copy_(values[name])


def drawn(draw: random.Random, family: str, folder: Path) -> Layout:
    """A layout that the trainer runs."""
    while True:
        tp, cp, pp, dp = (draw.choice((1, 1, 2, 2, 4)) for _ in range(4))
        layout = Layout(
            tp=tp,
            cp=cp,
            pp=pp,
            dp=dp,
            ep=draw.choice((1, 2))
            if "mix" in family or "moe" in family
            else 1,
            zero=draw.randrange(4),
            microbatch=draw.choice((1, 2, 4)),
            schedule=draw.choice(SCHEDULES) if pp > 1 else "1f1b",
            interleave=draw.choice((1, 2, 3)),
            recompute=draw.choice(("none", "selective", "full")),
            sequence_parallel=tp > 1 and draw.random() < 0.7,
        )
        if not 2 <= tp * cp * pp * dp <= 8:
            continue
        try:
            rules.demand(job(folder, layout), settings(folder, "none"))
        except BadInput:
            continue
        return layout


def beside(folder: Path, layout: Layout) -> dict[str, Any]:
    """The largest differences of a run under a layout."""
    output = folder / "run"
    wanted = job(folder, layout)
    run.train(wanted, settings(folder, str(output)))
    want = json.loads((folder / "losses.json").read_text())
    got = [row["loss"] for row in metrics(output / "metrics.jsonl")]
    worst = max(
        gradients(folder, output / "step-00000001").items(), key=lambda x: x[1]
    )
    return {
        "loss": max(abs(a - b) for a, b in zip(want, got, strict=True)),
        "gradient": worst[1],
        "tensor": worst[0],
    }


def gradients(folder: Path, checkpoint: Path) -> dict[str, float]:
    """Parameter -> error of its first gradient over its norm."""
    m = replace(load_hf(folder / "model"), dropout=False)
    theirs = weights.check(folder / "gradient", m)
    reader = Reader(checkpoint, read_index(checkpoint))
    with torch.device("meta"):
        whole = Decoder(m, range(m.layers), SEQ)
    beta1 = Settings().beta1
    errors = {}
    for name, p in dict(parameters(whole, m)).items():
        part = tuple(slice(0, n) for n in p.shape)
        want: Tensor = theirs.read(name, weights.rows(name, p, m), part)
        got = whole_tensor(reader, f"exp_avg/{name}", list(p.shape)) / (
            1 - beta1
        )
        errors[name] = float(
            (got - want).norm() / want.norm().clamp(min=1e-12)
        )
    return errors


def shown(layout: Layout) -> str:
    """The layout in words, without what is as usual."""
    usual = Layout()
    named = (
        "tp",
        "cp",
        "pp",
        "dp",
        "ep",
        "zero",
        "microbatch",
        "schedule",
        "interleave",
        "recompute",
    )
    words = [
        f"{n} {getattr(layout, n)}"
        for n in named
        if getattr(layout, n) != getattr(usual, n)
    ]
    return " ".join(words)


def main() -> None:
    """Draw, run, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layouts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(__file__).with_suffix(".md")
    )
    given = parser.parse_args()
    lines = [
        "| family | layout | loss | gradient | its tensor |",
        "|---|---|--:|--:|---|",
    ]
    if given.output.exists():
        lines = given.output.read_text("utf-8").splitlines()
    for number in range(len(lines) - 2, given.layouts):
        family = [*FAMILIES][number % len(FAMILIES)]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            fork_ranks(partial(made, family, folder, given.seed + number), 1)
            draw = random.Random(f"{given.seed}/{number}")
            layout = drawn(draw, family, folder)
            row = beside(folder, layout)
        wrong = " **" if max(row["loss"], row["gradient"]) > BOUND else ""
        lines.append(
            f"| {family} | {shown(layout)} | {row['loss']:.1e} | {row['gradient']:.1e}{wrong} |"
            f" {row['tensor']} |"
        )
        given.output.write_text("\n".join(lines) + "\n", "utf-8")
        print(lines[-1], flush=True)


if __name__ == "__main__":
    main()
