"""Loads of experts evened out, beside the same written plainly for one process; grouped products
beside a loop.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from jobs import (  # noqa: E402
    DEEPSEEK,
    MIXTRAL,
    SEQ,
    SETTINGS,
    VOCAB,
    adamw,
    clipped_update,
    each_rank,
    job,
    share,
    spoil,
    tokens,
)
from torch.nn import functional as fn  # noqa: E402

from layouts import cut  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.describe.model import Model  # noqa: E402
from meshwright.train import checkpoint, rules  # noqa: E402
from meshwright.train.generate import loaded  # noqa: E402
from meshwright.train.initial import initialise  # noqa: E402
from meshwright.train.launch import fork_ranks  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.model import Decoder  # noqa: E402
from meshwright.train.moe import (  # noqa: E402
    ExpertRows,
    MixtureOfExperts,
    in_one,
    one_by_one,
)
from meshwright.train.storage import Reader  # noqa: E402
from refusals import refusal  # noqa: E402

STRONG, RATE = 0.5, 0.02
"""A loss and a bias that weigh enough to be seen in three steps (an odd number: biases do not come back)."""
Z = 0.1
BALANCED = replace(
    SETTINGS, balance_loss=STRONG, balance_bias=RATE, router_z_loss=Z
)
STEPS = 3


def even(logits: Any, k: int, favour: Any) -> tuple[Any, Any]:
    """(loss of one layer, its loads [E]) from the logits of all sequences, [B, T, E]: the words of
    DeepSeek-V3's equations 16-20, expert by expert.
    """
    B, T, E = logits.shape
    s = logits.softmax(-1)
    chosen = (s.detach() + favour).topk(k).indices
    loads, total = torch.zeros(E), 0.0
    for b in range(B):
        for e in range(E):
            times = int((chosen[b] == e).sum())
            loads[e] += times
            total += E / (k * T) * times * s[b, :, e].mean()
    return total / B, loads


def plain(model: Model, steps: int) -> dict[str, Any]:
    """One process, whole batches: losses without the balancing one, weights, biases."""
    decoder = Decoder(model, range(model.layers), SEQ)
    initialise(decoder, model, SETTINGS.seed)
    mixtures = [
        b.ffn for b in decoder.blocks if isinstance(b.ffn, MixtureOfExperts)
    ]
    for moe in mixtures:
        moe.favour_E = torch.zeros(moe.experts.count)
    seen: list[Any] = []
    for moe in mixtures:
        moe.router.register_forward_hook(lambda *a: seen.append(a[2]))
    optimizer = adamw(decoder, SETTINGS)
    losses = []
    for step in range(steps):
        seen.clear()
        optimizer.zero_grad()
        whole = tokens(step)
        logits = decoder(whole[:, :-1])
        loss = fn.cross_entropy(
            logits.reshape(-1, VOCAB), whole[:, 1:].flatten()
        )
        total, every = loss, []
        for moe, of in zip(mixtures, seen, strict=True):
            L, loads = even(of.view(len(whole), SEQ, -1), moe.k, moe.favour_E)
            squares = of.flatten(0, -2).logsumexp(-1).square()
            total = total + STRONG * L + Z * squares.mean()
            every.append(loads)
        total.backward()
        clipped_update(decoder, optimizer, step, SETTINGS)
        for moe, loads in zip(mixtures, every, strict=True):
            moe.favour_E += RATE * (loads.mean() - loads).sign()
        losses.append(float(loss.detach()))
    return {
        "losses": losses,
        "favour": [moe.favour_E.tolist() for moe in mixtures],
        "router": mixtures[-1].router.weight.detach().flatten().tolist(),
    }


def trained(model: Model, layout: Layout, folder: Path) -> dict[str, Any]:
    """The same by the trainer; what its last rank has, and a checkpoint."""
    wanted = job(model, layout)
    rules.demand(wanted, BALANCED)

    def work(device: torch.device) -> dict[str, Any]:
        trainer = Trainer(wanted, BALANCED, device)
        losses = [
            trainer.step(step, *share(trainer, tokens(step, wanted.batch)))
            for step in range(STEPS)
        ]
        checkpoint.save(trainer, folder, STEPS, keep=1)
        # the attribute is the part of the last pass, where tp cuts a weight
        router = trainer.expert_layers()[-1].router
        weight: Any = dict(router.named_parameters())["weight"].detach()
        if hasattr(weight, "full_tensor"):
            weight = weight.full_tensor()
        return {
            "losses": [result.loss for result in losses],
            "favour": [
                moe.favour_E.tolist() for moe in trainer.expert_layers()
            ],
            "router": weight.flatten().tolist(),
        }

    return dict(each_rank(work, layout.chips)[-1])


LAYOUTS = {
    "accumulation, full recomputation": (DEEPSEEK, cut("microbatch2 full")),
    "dp2 ep2": (MIXTRAL, cut("dp2 ep2 microbatch4")),
    "tp2": (MIXTRAL, cut("tp2 microbatch8")),
    "cp2 ep2": (MIXTRAL, cut("cp2 ep2 microbatch8")),
    "pp2": (DEEPSEEK, cut("pp2 microbatch4 1f1b")),
}


NOT_DAILY = {"cp2 ep2", "pp2"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in NOT_DAILY))
        for name in LAYOUTS
    ],
)
def test_balanced_loads_are_those_of_one_process(
    name: str, tmp_path: Path
) -> None:
    model, layout = LAYOUTS[name]
    want, found = plain(model, STEPS), trained(model, layout, tmp_path)
    assert found["losses"] == pytest.approx(want["losses"], abs=1e-5)
    assert found["router"] == pytest.approx(want["router"], abs=2e-5)
    here = want["favour"][-len(found["favour"]) :]  # of the last stage
    assert len(found["favour"]) == (2 if layout.pp == 2 else len(here))
    for mine, theirs in zip(found["favour"], here, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)
        assert max(map(abs, mine)) > RATE / 2
    kept = checkpoint.complete(tmp_path)[-1]
    alone = loaded(Reader(kept), model)
    last: Any = alone.blocks[-1].ffn
    assert last.favour_E.tolist() == pytest.approx(here[-1], abs=1e-6)


def test_biases_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    """They are in it; one without them begins with none. A run that balances no more goes on to
    choose by them, and moves none.
    """

    def work(device: torch.device) -> None:
        wanted = job(MIXTRAL, cut("microbatch8"))
        for of in (BALANCED, SETTINGS):
            first = Trainer(wanted, of, device)
            first.step(0, *share(first, tokens(0)))
            path = checkpoint.save(first, tmp_path / str(id(of)), 1, keep=1)
            again = Trainer(wanted, BALANCED, device, fresh=False)
            assert checkpoint.load(again, path) == 1
            for a, b in zip(
                first.expert_layers(), again.expert_layers(), strict=True
            ):
                want = torch.zeros(8) if a.favour_E is None else a.favour_E
                assert torch.equal(b.favour_E, want)
                assert bool(want.any()) == (of is BALANCED)
            if of is BALANCED:
                rest = Trainer(wanted, SETTINGS, device, fresh=False)
                checkpoint.load(rest, path)
                rest.step(1, *share(rest, tokens(1)))
                for a, b in zip(
                    first.expert_layers(), rest.expert_layers(), strict=True
                ):
                    assert torch.equal(b.favour_E, a.favour_E)

    fork_ranks(work, 1, timeout_s=120)


def test_loads_of_a_step_that_was_skipped_do_not_count() -> None:
    """The biases after it are those of a run without it."""

    def work(device: torch.device) -> None:
        favours = []
        for skipped in (True, False):
            trainer = Trainer(
                job(MIXTRAL, cut("microbatch8")), BALANCED, device
            )
            if skipped:
                spoil(trainer)
                trainer.step(0, *share(trainer, tokens(0)))
            trainer.step(1, *share(trainer, tokens(1)))
            favours.append([x.favour_E for x in trainer.expert_layers()])
        assert all(torch.equal(a, b) for a, b in zip(*favours, strict=True))

    fork_ranks(work, 1, timeout_s=120)


def test_dense_models_have_no_loads() -> None:
    dense = replace(MIXTRAL, moe=None)
    with refusal("balance_loss is for the routers"):
        rules.demand(job(dense, cut("microbatch8")), BALANCED)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_products_are_those_of_a_loop(dtype: Any, bias: bool) -> None:
    """One expert has no rows; values and all gradients, within the numbers' rounding."""
    torch.manual_seed(1)
    count = torch.tensor([3, 0, 16, 5])
    given = [torch.randn(24, 32), torch.randn(4, 48, 32), torch.randn(4, 48)]
    got = []
    for product in (in_one, one_by_one):
        x, w, b = (t.to(dtype).requires_grad_() for t in given)
        y = product(x, w, b if bias else None, ExpertRows(count))
        (y.float() ** 2).sum().backward()
        got.append([y, x.grad, w.grad, *([b.grad] if bias else [])])
    near = 1e-5 if dtype == torch.float32 else 2e-2
    for one, other in zip(*got, strict=True):
        far = (one - other).abs().max() / other.abs().max()
        assert far <= near
    assert not got[0][2][1].any(), "an expert without rows learns nothing"
