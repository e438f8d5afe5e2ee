"""The study trainer computes what transformers computes: its GPT-2 with the study's weights, without
biases and with RMSNorm in place of LayerNorm. Every axis is compared with the study's one process in
`test_study_and_engine`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from torch import Tensor, nn  # noqa: E402

from meshwright.study import check  # noqa: E402
from meshwright.study.model import (  # noqa: E402
    MLP,
    Shape,
    adam,
    batch,
    decoder,
)

M = Shape()
HEAD = M.layers + 1


def theirs() -> nn.Module:
    """GPT-2 of the study's sizes."""
    config = transformers.GPT2Config(
        vocab_size=M.vocabulary,
        n_positions=M.seq,
        n_embd=M.hidden,
        n_layer=M.layers,
        n_head=M.heads,
        activation_function="gelu",
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    body: nn.Module = model.transformer
    for layer in body.h:
        layer.ln_1, layer.ln_2 = nn.RMSNorm(M.hidden), nn.RMSNorm(M.hidden)
    body.ln_f = nn.RMSNorm(M.hidden)
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            p.requires_grad_(False).zero_()
    return model


def by_name(
    model: nn.Module, of: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """What `of` gives of each weight, as the study names and turns it."""
    body: nn.Module = model.transformer
    named = {
        "0.token": of(body.wte.weight),
        "0.position": of(body.wpe.weight),
        f"{HEAD}.norm": of(body.ln_f.weight),
        f"{HEAD}.out": of(model.lm_head.weight),
    }
    for number, layer in enumerate(body.h, 1):
        parts = of(layer.attn.c_attn.weight).T.chunk(3)
        named |= {
            f"{number}.norm1": of(layer.ln_1.weight),
            f"{number}.norm2": of(layer.ln_2.weight),
            **{
                f"{number}.attention.{letter}": part
                for letter, part in zip("qkv", parts, strict=True)
            },
            f"{number}.attention.out": of(layer.attn.c_proj.weight).T,
            f"{number}.mlp.up": of(layer.mlp.c_fc.weight).T,
            f"{number}.mlp.down": of(layer.mlp.c_proj.weight).T,
        }
    return {f"{name}.weight": x for name, x in named.items()}


def test_a_step_is_that_of_transformers() -> None:
    """Loss, every gradient, every weight after Adam: of its largest element."""
    model, data = theirs(), batch(M)
    views = by_name(model, lambda p: p.data)
    ours = dict(decoder(M, MLP).named_parameters())
    assert views.keys() == ours.keys()
    for name, x in ours.items():
        views[name].copy_(x.detach())
    logits = model(data.tokens).logits.flatten(0, 1)
    mean = nn.functional.cross_entropy(logits, data.targets.flatten())
    torch.autograd.backward(mean)
    adam([p for p in model.parameters() if p.requires_grad])
    study = check.reference(MLP)
    assert float(study.loss) == pytest.approx(mean.item(), abs=check.BOUND)
    slopes = by_name(model, lambda p: p.grad)  # type: ignore[arg-type, return-value]
    after = by_name(model, lambda p: p.data)
    for have, want in ((study.gradients, slopes), (study.weights, after)):
        for name, x in want.items():
            far = (have[name] - x).abs().max() / x.abs().max()
            assert far < check.BOUND, name
