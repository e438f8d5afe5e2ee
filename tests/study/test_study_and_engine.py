"""The study trainer computes what the engine computes: the engine on one process with the study's
weights and batch. An axis is as far from it at most as from the study's one process, and that from
the engine, together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
from meshwright import Model, MoE  # noqa: E402
from meshwright.study import check, ep  # noqa: E402
from meshwright.study.model import (  # noqa: E402
    MLP,
    Batch,
    Shape,
    StudyStep,
    adam,
    batch,
    decoder,
    gradients,
)
from meshwright.train.loss import loss  # noqa: E402
from meshwright.train.model import Decoder  # noqa: E402
from meshwright.train.moe import MixtureOfExperts  # noqa: E402

M = Shape()
ENGINE = Model(
    "study",
    M.layers,
    M.hidden,
    M.heads,
    4 * M.hidden,
    M.vocabulary,
    M.seq,
    gated=False,
    positions="learned",
    norm_epsilon=torch.finfo(torch.float32).eps,
)
EXPERTS = MoE(ep.EXPERTS, top_k=ep.EXPERTS, expert_ffn=4 * M.hidden)
WORDS = {
    "0.token": "embedding",
    "0.position": "positions",
    f"{M.layers + 1}.norm": "norm",
    f"{M.layers + 1}.out": "head",
    "norm1": "attention_norm",
    "norm2": "ffn_norm",
    **{letter: f"w{letter}" for letter in "qkv"},
    "mlp.up": "ffn.up",
    "mlp.down": "ffn.down",
    "mlp.router": "ffn.router",
}
"""Weight of the study -> of the engine; inside layers without their number."""


def engine_name(name: str) -> str:
    """0.token.weight -> embedding.weight; 2.attention.q.weight -> layers.1.attention.wq.weight."""
    layer, _, rest = name.removesuffix(".weight").partition(".")
    if f"{layer}.{rest}" in WORDS:
        return f"{WORDS[f'{layer}.{rest}']}.weight"
    inside = f"layers.{int(layer) - 1}."
    if rest.startswith("attention."):
        letter = rest.removeprefix("attention.")
        return f"{inside}attention.{WORDS.get(letter, 'wo')}.weight"
    if rest.startswith("mlp.") and not name.endswith(".weight"):
        return f"{inside}ffn.experts.{rest.removeprefix('mlp.')}.weight"
    return f"{inside}{WORDS[rest]}.weight"


class ExpertChoice:
    """The engine's tokens go to all experts; those an expert has not chosen count for nothing."""

    def pressed(
        self,
        moe: MixtureOfExperts,
        weight_Nk: torch.Tensor,
        logit_NE: torch.Tensor,
        choice: torch.Tensor,
    ) -> torch.Tensor:
        gate_BSE = logit_NE.softmax(-1).view(M.batch, M.seq, -1)
        chosen_BCE = gate_BSE.topk(M.seq // ep.EXPERTS, dim=1).indices
        mask_BSE = torch.zeros_like(gate_BSE).scatter(1, chosen_BCE, 1.0)
        mask_NE = mask_BSE.flatten(0, 1)
        return weight_Nk * mask_NE.gather(1, choice.view_as(weight_Nk))


def engine_step(mlp: check.MLPKind, data: Batch) -> StudyStep:
    """Loss, gradients and weights after Adam of the engine, in the names and shapes of the study."""
    study = dict(decoder(M, mlp).named_parameters())
    experts = mlp is ep.StudyExperts
    model = replace(ENGINE, moe=EXPERTS) if experts else ENGINE
    engine = Decoder(model, range(M.layers), M.seq)
    named = dict(engine.named_parameters())
    assert {engine_name(name) for name in study} == named.keys()
    for name, weight in study.items():
        named[engine_name(name)].data = turned(weight.detach()).clone()
    for module in engine.modules():
        if isinstance(module, MixtureOfExperts):
            module.balance = ExpertChoice()  # type: ignore[assignment]
    mean = loss(engine(data.tokens), data.targets)
    torch.autograd.backward(mean)
    adam(engine.parameters())
    slopes = gradients(engine)
    return StudyStep(
        mean.detach(),
        {name: turned(slopes[engine_name(name)]) for name in study},
        {name: turned(named[engine_name(name)].detach()) for name in study},
    )


def turned(x: torch.Tensor) -> torch.Tensor:
    """Experts stand as [E, inner, out] in the study, [E, out, inner] in the engine."""
    return x.mT if x.ndim == 3 else x


def distance(mlp: check.MLPKind) -> float:
    """Of the study's one process from the engine's, of a tensor's largest element."""
    want, step = engine_step(mlp, batch(M)), check.reference(mlp)
    return max(abs(float(step.loss / want.loss) - 1), *apart(step, want))


def apart(step: StudyStep, want: StudyStep) -> Iterator[float]:
    for tensors, wanted in (
        (step.gradients, want.gradients),
        (step.weights, want.weights),
    ):
        assert tensors.keys() == wanted.keys()
        for name, x in tensors.items():
            largest = wanted[name].abs().max()
            yield float((x - wanted[name]).abs().max() / largest)


def test_every_axis_is_the_step_of_the_engine(sound: list[check.Row]) -> None:
    dense, sparse = distance(MLP), distance(ep.StudyExperts)
    for row in sound:
        far = sparse if row.axis == "ep" else dense
        assert row.error + far < check.BOUND, row
