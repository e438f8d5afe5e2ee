"""Small jobs of the trainer's tests, and the same step written without any parallelism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as fn

from host import job as job
from meshwright.describe.model import Model, MoE
from meshwright.describe.training import Settings
from meshwright.train.initial import initialise, local
from meshwright.train.launch import fork_ranks
from meshwright.train.model import Decoder

SEQ, BATCH, VOCAB = 32, 8, 256
LLAMA = Model("llama", 4, 64, 4, 160, VOCAB, SEQ, kv_heads=2)
LLAMA6 = replace(
    LLAMA,
    name="llama of 6 layers, heads of its own width",
    layers=6,
    head_dim=24,
    qk_norm=True,
)
GPT = Model(
    "gpt",
    4,
    64,
    4,
    256,
    VOCAB,
    SEQ,
    gated=False,
    norm="layernorm",
    positions="learned",
    qkv_bias=True,
    bias=True,
    tied_embeddings=True,
)
WINDOW = replace(
    LLAMA,
    name="windows",
    kv_heads=1,
    window=8,
    full_every=2,
    norm="nonparametric",
)
MIXTRAL = replace(LLAMA, name="mixtral", moe=MoE(8, 2, 96))
DEEPSEEK = replace(
    LLAMA,
    name="shared experts, dense layers first",
    moe=MoE(
        4,
        2,
        48,
        shared_ffn=64,
        dense_layers=1,
        router_bias=True,
        shared_gate=True,
    ),
)
FEW_EXPERTS = replace(
    LLAMA, name="fewer experts than ranks", moe=MoE(2, 1, 96)
)
PLAIN_EXPERTS = replace(
    LLAMA,
    name="experts with biases, no gates",
    kv_heads=None,
    gated=False,
    bias=True,
    norm="layernorm",
    moe=MoE(4, 1, 96, expert_bias=True),
)
SETTINGS = Settings(steps=20, lr=1e-3, warmup=3, clip=1.0)


def each_rank(
    work: Callable[[torch.device], Any], ranks: float, timeout_s: float = 120
) -> list[Any]:
    """What the work of each rank returns, in their order."""
    with TemporaryDirectory() as folder:

        def written(device: torch.device) -> None:
            torch.save(work(device), f"{folder}/{dist.get_rank()}.pt")

        fork_ranks(written, int(ranks), timeout_s=timeout_s)
        return [
            torch.load(f"{folder}/{rank}.pt", weights_only=False)
            for rank in range(int(ranks))
        ]


def tokens(step: int, batch: int = BATCH) -> Tensor:
    """Sequences of a step with one token more than is trained on, [batch, SEQ + 1]."""
    return torch.randint(
        VOCAB, (batch, SEQ + 1), generator=torch.Generator().manual_seed(step)
    )


def share(trainer: Any, whole: Tensor) -> tuple[Tensor, Tensor]:
    """(inputs, targets) of this rank."""
    mine = whole.chunk(int(trainer.layout.dp))[trainer.mesh.replica]
    x, y = trainer.share(mine)
    return x, y


def loss_and_norm(trainer: Any, x: Tensor, y: Tensor) -> tuple[float, float]:
    """(loss, norm of the gradient) of the whole batch; its gradients are there."""
    loss, squares = trainer.sums(x, y).tolist()
    return loss / trainer.scaler.scale, squares**0.5 / trainer.scaler.scale


def spoil(trainer: Any, number: float = torch.nan) -> None:
    """The next gradients of this rank, and of no other, hold a number that is none (in the last
    element, which is its own under tp).
    """
    run = trainer.engine.run

    def once(x: Tensor, y: Tensor) -> Any:
        losses = run(x, y)
        first = next(iter(trainer.parameters().values()))
        local(first.grad).view(-1)[-1] = number
        trainer.engine.run = run
        return losses

    trainer.engine.run = once


def reference(
    model: Model, settings: Settings = SETTINGS, batch: int = BATCH
) -> dict[str, Any]:
    """One process, the whole batch at once, PyTorch's own clipping and AdamW: losses, norms,
    weights.
    """
    decoder = Decoder(model, range(model.layers), SEQ)
    initialise(decoder, model, settings.seed)
    optimizer = adamw(decoder, settings)
    found: dict[str, Any] = {"losses": [], "norms": []}
    for step in range(settings.steps):
        optimizer.zero_grad()
        value = backward(decoder, step, batch)
        norm = clipped_update(decoder, optimizer, step, settings)
        found["losses"].append(value)
        found["norms"].append(float(norm))
    found["weights"] = {
        n: p.detach().clone() for n, p in decoder.named_parameters()
    }
    return found


def adamw(decoder: Decoder, settings: Settings) -> torch.optim.AdamW:
    """PyTorch's, where matrices decay and nothing else."""
    named = dict(decoder.named_parameters())
    matrices = [
        p for name, p in named.items() if p.ndim > 1 and "bias" not in name
    ]
    vectors = [p for name, p in named.items() if p.ndim == 1 or "bias" in name]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay or 0.0},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)


def clipped_update(
    decoder: Decoder, optimizer: Any, step: int, settings: Settings
) -> Tensor:
    """The norm of the gradient before it was clipped."""
    norm: Tensor = torch.nn.utils.clip_grad_norm_(
        decoder.parameters(), settings.clip or 1e30
    )
    for group in optimizer.param_groups:
        group["lr"] = rate(step, settings)
    optimizer.step()
    return norm


def backward(decoder: Decoder, step: int, batch: int) -> float:
    """The loss of the whole batch of a step at once; leaves its gradients."""
    whole = tokens(step, batch)
    logits = decoder(whole[:, :-1])
    value = fn.cross_entropy(logits.flatten(0, 1), whole[:, 1:].flatten())
    value.backward()  # type: ignore[no-untyped-call]
    return float(value.detach())


def gradients(
    model: Model, weights: dict[str, Tensor], step: int, batch: int
) -> dict[str, Tensor]:
    """Gradients of one process at these weights (a tied head has none of its own)."""
    decoder = Decoder(model, range(model.layers), SEQ)
    decoder.load_state_dict(weights, strict=False)
    assert {name for name, _ in decoder.named_parameters()} <= set(weights)
    backward(decoder, step, batch)
    return {
        name: p.grad
        for name, p in decoder.named_parameters()
        if p.grad is not None
    }


def rate(step: int, s: Settings) -> float:
    """The learning rate, from PyTorch's own schedulers' formulas: linear warm-up, cosine to a
    tenth.
    """
    if step < s.warmup:
        return s.lr * (step + 1) / s.warmup
    low = s.lr * s.final_lr
    cosine = torch.cos(
        torch.tensor(
            torch.pi * (step - s.warmup) / (s.steps - 1 - s.warmup),
            dtype=torch.float64,
        )
    )
    return float(low + (s.lr - low) * (1 + cosine) / 2)
