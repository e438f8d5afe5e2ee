"""Random layouts of seven families beside transformers: the loss of each step, and every tensor of
the first gradient.

    python benchmarks/random_layouts.py [--layouts 60] [--seed 1] [-o benchmarks/random_layouts.md]

A family's model of transformers (eager attention, random weights) trains six steps of random tokens
in one process with PyTorch's AdamW, and the trainer does the same from the same weights under a
layout drawn at random, on up to eight gloo ranks in fp32. Every second run of experts has a balance
loss, taken by transformers' own function of each layer and sequence. The first gradient is what the
first checkpoint holds as its mean. A row is written as soon as it is there, and a start after an
interruption goes on behind the last one.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as fn
from torch.nn.utils import get_total_norm

from meshwright import Chip, Cluster, Job, Layout, Network
from meshwright.describe.network import Dim
from meshwright.describe.training import Settings
from meshwright.errors import BadInput
from meshwright.formats.hf import load_hf
from meshwright.formats.run_folder import metrics
from meshwright.train import rules, run, texts, weights
from meshwright.train.balance import Balance
from meshwright.train.feed import source
from meshwright.train.launch import fork_ranks
from meshwright.train.loop import rate
from meshwright.train.model import Decoder
from meshwright.train.storage import Reader

BATCH, SEQ, STEPS, BOUND = 16, 64, 6, 2e-6
BALANCE = 0.1
"""Coefficient of the balance loss: a tenth of the first gradient's norm or more."""
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
HEAD = """# Random layouts beside transformers

Written by `benchmarks/random_layouts.py`, which says how. Differences of losses over six steps, and
of tensors of the first gradient over their norm: the trainer from transformers, each from fp64.
Bound: 2e-6; what is above it is marked.

| family | layout | loss | gradient | its tensor | to fp64: loss | gradient | transformers to fp64: loss | gradient |
|---|---|--:|--:|---|--:|--:|--:|--:|
"""
SCHEDULES = (
    "gpipe",
    "1f1b",
    "interleaved",
    "interleaved-zb",
    "zbv",
    "dualpipev",
)


def settings(
    folder: Path, output: str, balance: float | None = None
) -> Settings:
    """Clipping binds, and each step is kept. Adam's epsilon is a hundredth of a usual gradient and
    the rate what such models are trained with. With 1e-8 an element that has no gradient moves by
    its rounding as far as others by their gradient, and with five times the rate losses rise: after
    six steps transformers itself then stood up to 3e-5, and with the rate alone 6e-6, from its own
    loss in fp64, and this trainer as far from both.
    """
    return Settings(
        steps=STEPS,
        lr=2e-3,
        warmup=2,
        clip=0.5,
        epsilon=1e-5,
        data=str(folder / "tokens"),
        weights=str(folder / "model"),
        output=output,
        save_every=1,
        keep=STEPS,
        check_every=2,
        balance_loss=balance,
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


def with_experts(family: str) -> bool:
    """Whether layers have experts."""
    return "mix" in family or "moe" in family


def balance_loss(model: Any, logits: tuple[Tensor, ...]) -> Tensor:
    """Sum over layers, mean over sequences, from the router logits of each layer, [B T, E].

    transformers' f sums to k over a sequence, that of DeepSeek-V3 (equation 18) to 1.
    """
    module = sys.modules[type(model).__module__]
    experts, k = model.num_experts, model.num_experts_per_tok
    each = [
        module.load_balancing_loss_func((of_sequence,), experts, k)
        for of_layer in logits
        for of_sequence in of_layer.chunk(BATCH)
    ]
    return torch.stack(each).sum() / (k * BATCH)


def made(
    family: str,
    folder: Path,
    seed: int,
    balance: float | None,
    device: torch.device,
) -> None:
    """The model of transformers, the tokens, its losses and its first gradient."""
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
    texts.write_texts(folder / "tokens", [ids], 256, "bytes", "random")

    def step(tokens: Tensor) -> tuple[Tensor, Tensor | float]:
        routed = {"output_router_logits": True} if balance else {}
        of = model(tokens, **routed)
        pressure = balance_loss(model, of.router_logits) if balance else 0.0
        return of.logits, (balance or 0.0) * pressure

    losses, first = six_steps(model, step, folder)
    (folder / "theirs.json").write_text(json.dumps(losses))
    model.load_state_dict(first, strict=False)
    model.save_pretrained(folder / "gradient")


def exact(folder: Path, balance: float | None, device: torch.device) -> None:
    """The same steps by the trainer's own decoder in one process in fp64: what both would say
    without rounding.
    """
    m = replace(load_hf(folder / "model"), dropout=False)
    model = Decoder(m, range(m.layers), SEQ)
    weights.fill(model, m, weights.check(folder / "model", m))
    model.double()
    for block in model.blocks:
        window = block.attention.window or SEQ
        block.attention.core = partial(attention, window)
    # routers say `float()`, which must not round here; this process ends with this function
    keeps = torch.float64
    torch.Tensor.float = lambda x: (
        x if x.dtype == keeps else x.to(torch.float32)
    )
    if balance:
        even = Balance(balance, 0.0, weight=lambda: 1.0)
        mixtures = [block.ffn for block in model.blocks]
        even.attach(mixtures, len(mixtures[0].router.weight), device)
    losses, first = six_steps(model, lambda x: (model(x), 0.0), folder)
    (folder / "exact.json").write_text(json.dumps(losses))
    torch.save(first, folder / "exact.pt")


def attention(
    window: int, q: Tensor, k: Tensor, v: Tensor, *tiles: Any
) -> Tensor:
    """Causal attention by a matrix of scores, [B, T, H, h]: neither tiles nor flash kernels."""
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    ones = torch.ones(SEQ, SEQ, dtype=torch.bool)
    seen = ones.tril() & ones.triu(1 - window)
    scores = (q @ k.mT / q.shape[-1] ** 0.5).where(seen, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


def six_steps(
    model: torch.nn.Module,
    forward: Callable[[Tensor], tuple[Tensor, Tensor | float]],
    folder: Path,
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses, and the first gradient by name, with PyTorch's own norm and AdamW. forward: tokens
    -> (logits, what is added to the loss before the backward pass).
    """
    s = settings(folder, "none")
    samples = source(job(folder, Layout(dp=1)), s)
    named = dict(model.named_parameters())
    vectors = [p for name, p in named.items() if is_vector(name)]
    matrices = [p for name, p in named.items() if not is_vector(name)]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": s.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(s.beta1, s.beta2),
        eps=s.epsilon,
    )
    losses, first = [], {}
    for step in range(STEPS):
        rows = torch.from_numpy(samples.samples(step * BATCH, BATCH))
        optimizer.zero_grad()
        logits, more = forward(rows[:, :-1])
        loss = fn.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        (loss + more).backward()
        grads = [p.grad for p in named.values() if p.grad is not None]
        # PyTorch's `clip_grad_norm_` adds 1e-6 to the norm, which is as much as is looked for here
        torch._foreach_mul_(
            grads, min(s.clip / float(get_total_norm(grads)), 1.0)
        )
        first = first or {
            name: p.grad.clone()
            for name, p in named.items()
            if p.grad is not None
        }
        for group in optimizer.param_groups:
            group["lr"] = rate(s, step)
        optimizer.step()
        losses.append(loss.item())
    return losses, first


def is_vector(name: str) -> bool:
    """Of the parameters that no weight decay is for."""
    return name.endswith("bias") or "norm" in name or "ln_" in name


def drawn(draw: random.Random, family: str, folder: Path) -> Layout:
    """A layout that the trainer runs. Its schedule is drawn once: of all layouts that are refused,
    most are of the schedules that ask most of the rest.
    """
    schedule = draw.choice((None, None, None, *SCHEDULES))
    while True:
        tp, cp, dp = (draw.choice((1, 1, 2, 2, 4)) for _ in range(3))
        pp = draw.choice((2, 2, 4)) if schedule else 1
        layout = Layout(
            tp=tp,
            cp=cp,
            pp=pp,
            dp=dp,
            ep=draw.choice((1, 2)) if with_experts(family) else 1,
            zero=draw.choice((0, 1, 2, 3, 3, 3)),
            microbatch=draw.choice((1, 2, 4)),
            schedule=schedule or "1f1b",
            interleave=draw.choice((1, 2, 3)),
            recompute=draw.choice(("none", "selective", "selective", "full")),
            sequence_parallel=tp > 1 and draw.random() < 0.7,
        )
        if not 2 <= tp * cp * pp * dp <= 8:
            continue
        try:
            rules.demand(job(folder, layout), settings(folder, "none"))
        except BadInput:
            continue
        return layout


def beside(
    folder: Path, layout: Layout, balance: float | None
) -> dict[str, Any]:
    """The largest differences of a run under a layout from transformers, and of both from fp64."""
    output = folder / "run"
    run.train(job(folder, layout), settings(folder, str(output), balance))
    ours = [row["loss"] for row in metrics(output / "metrics.jsonl")]
    theirs, exact = (
        json.loads((folder / name).read_text())
        for name in ("theirs.json", "exact.json")
    )
    gradients = first_gradients(folder, output / "step-00000001")
    errors = {
        name: (norm(our - their), norm(our - true), norm(their - true))
        for name, (our, their, true) in gradients.items()
    }
    scale = {name: norm(true) for name, (_, _, true) in gradients.items()}
    for name in scale:
        if name.endswith("wk.bias"):
            # keys moved alike move no softmax: all of it is rounding, of what its matrix sums
            scale[name] = scale[name.replace("bias", "weight")]
    worst, *from_exact = (
        # what is no number is worst: `max` would drop it
        max(
            (np.nan_to_num(each[k] / scale[name], nan=np.inf), name)
            for name, each in errors.items()
        )
        for k in range(3)
    )
    return {
        "loss": largest(ours, theirs),
        "ours": largest(ours, exact),
        "theirs": largest(theirs, exact),
        "gradient": worst[0],
        "tensor": worst[1],
        "our gradient": from_exact[0][0],
        "their gradient": from_exact[1][0],
    }


def largest(a: list[float], b: list[float]) -> float:
    """The largest difference of a step, NaN if one is."""
    return float(np.abs(np.subtract(a, b)).max())


def norm(x: Tensor) -> float:
    """Root of the sum of squares."""
    return float(x.double().norm())


def first_gradients(
    folder: Path, checkpoint: Path
) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Parameter -> its first gradient by the trainer, by transformers, and in fp64."""
    m = replace(load_hf(folder / "model"), dropout=False)
    theirs = weights.check(folder / "gradient", m)
    exact = torch.load(folder / "exact.pt")
    reader = Reader(checkpoint)
    part = 1 - Settings().beta1
    every = {}
    for name, true in exact.items():
        all_of_it = tuple(slice(0, n) for n in true.shape)
        our = reader.whole(f"exp_avg/{name}")
        their = theirs.read(
            name, weights.weight_rows(name, true, m), all_of_it
        )
        every[name] = our.double() / part, their.double(), true
    return every


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
    if layout.tp > 1 and not layout.sequence_parallel:
        words.append("whole sequences")
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
    lines = HEAD.splitlines()
    if given.output.exists():
        lines = given.output.read_text("utf-8").splitlines()
    done = len(lines) - len(HEAD.splitlines())
    for number in range(done, given.layouts):
        family = [*FAMILIES][number % len(FAMILIES)]
        balance = BALANCE if with_experts(family) and number % 2 else None
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            seed = given.seed + number
            fork_ranks(partial(made, family, folder, seed, balance), 1)
            fork_ranks(partial(exact, folder, balance), 1)
            draw = random.Random(f"{given.seed}/{number}")
            layout = drawn(draw, family, folder)
            row = beside(folder, layout, balance)
        fine = row["loss"] <= BOUND and row["gradient"] <= BOUND
        wrong = "" if fine else " **"
        figures = (
            f"{row['loss']:.1e} | {row['gradient']:.1e}{wrong} | {row['tensor']}",
            *(
                f"{row[key]:.1e}"
                for key in ("ours", "our gradient", "theirs", "their gradient")
            ),
        )
        lines.append(
            f"| {family}{', balance loss' * bool(balance)} | {shown(layout)} | "
            + " | ".join(figures)
            + " |"
        )
        given.output.write_text("\n".join(lines) + "\n", "utf-8")
        print(lines[-1], flush=True)


if __name__ == "__main__":
    main()
