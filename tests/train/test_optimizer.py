"""AdamW's state is what PyTorch itself makes, on its device; what decays is decided by role."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from jobs import GPT, LLAMA, PLAIN_EXPERTS, SEQ, SETTINGS, job, share, tokens  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.errors import BadInput  # noqa: E402
from meshwright.train import checkpoint, registry  # noqa: E402
from meshwright.train.launch import fork_ranks  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.model import Decoder  # noqa: E402
from meshwright.train.optimizer import optimizer  # noqa: E402


def places(state: dict[str, Any]) -> dict[str, Any]:
    """Name of a tensor of the state -> its device, dtype and shape."""
    return {name: (x.device, x.dtype, x.shape) for name, x in state.items()}


def bare(optimizer: Any, stages: Any = None) -> Trainer:
    """A trainer that has nothing but an optimizer."""
    trainer = Trainer.__new__(Trainer)
    trainer.optimizer, trainer.stages = optimizer, stages or {}
    return trainer


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("fused", [True, None])
def test_state_that_is_made_before_a_step_is_what_pytorch_makes_in_one(
    device: str, fused: bool | None
) -> None:
    """Of parameters on a GPU that is not there: fused AdamW wants its count of steps on the GPU,
    the other on the CPU.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        p, q = (
            torch.nn.Parameter(torch.empty(4, 6, device=device))
            for _ in range(2)
        )
        mine, pytorch = (
            torch.optim.AdamW([x], lr=1e-3, fused=fused) for x in (p, q)
        )
        made = bare(mine).state(p)
        q.grad = torch.zeros_like(q)
        pytorch.step()
        assert places(made) == places(pytorch.state[q])
        assert made["step"].device.type == (device if fused else "cpu")
        made["step"].fill_(7.0)  # as `checkpoint.load` does
        assert places(made) == places(pytorch.state[q])


def test_the_trainer_asks_for_fused_adamw_on_gpus_and_its_state_is_there() -> (
    None
):
    with FakeTensorMode(allow_non_fake_inputs=True):
        layer = torch.nn.Module()
        layer.weight = torch.nn.Parameter(torch.empty(4, 4, device="cuda"))
        trainer = bare(optimizer([layer], SETTINGS, torch.device("cuda")))
        found = {
            x.device.type
            for p in layer.parameters()
            for x in trainer.state(p).values()
        }
    assert found == {"cuda"}


def test_making_state_changes_no_weight_and_no_later_step() -> None:
    """Bit by bit, signs of zeros too, and with gradients of an overflow still there."""
    torch.manual_seed(1)
    first = torch.randn(5, 3)
    first[0] = torch.tensor([-0.0, 0.0, 1e-30])
    layers = [torch.nn.Linear(3, 5, bias=False) for _ in range(2)]
    for layer in layers:
        layer.weight.data.copy_(first)
    one, other = (
        optimizer([layer], SETTINGS, torch.device("cpu")) for layer in layers
    )
    layers[0].weight.grad = torch.full((5, 3), torch.nan)
    assert float(bare(one).state(layers[0].weight)["step"]) == 0
    assert torch.equal(
        layers[0].weight.view(torch.int32), first.view(torch.int32)
    )
    for step in range(3):
        for layer, each in zip(layers, (one, other), strict=True):
            layer.weight.grad = torch.full((5, 3), 0.1 * step)
            each.step()
    assert torch.equal(layers[0].weight, layers[1].weight)


class Signs(torch.optim.Optimizer):
    """Lion without momentum of its own; its step takes no closure."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.add_(mean.lerp_(p.grad, 0.5).sign(), alpha=-group["lr"])


class Counting(Signs):
    """It counts its steps where no checkpoint looks."""

    def step(self) -> None:
        super().step()
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1


@pytest.mark.parametrize("made", [Signs, torch.optim.NAdam])
def test_an_optimizer_of_ones_own_goes_on(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit by bit, under ZeRO too; NAdam keeps a product of its rates for each weight."""
    monkeypatch.setattr(registry, "imported_part", lambda *names: made)
    settings = replace(SETTINGS, own_optimizer="mine:it", lr=0.01)
    wanted = job(LLAMA, Layout(dp=2, zero=1, microbatch=4))

    def work(device: torch.device) -> None:
        whole = Trainer(wanted, settings, device)
        for step in range(2):
            whole.step(step, *share(whole, tokens(step)))
        path = checkpoint.save(whole, tmp_path, 2, keep=1)
        other = Trainer(wanted, settings, device, fresh=False)
        checkpoint.load(other, path)
        for step in (2, 3):
            one, two = (
                each.step(step, *share(each, tokens(step)))
                for each in (whole, other)
            )
            assert one == two

    fork_ranks(work, 2, timeout_s=120)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (Counting, "keeps count of group 0"),
        (torch.optim.Adafactor, "keeps row_var"),
    ],
)
def test_what_no_checkpoint_keeps_is_refused(
    made: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "imported_part", lambda *names: made)
    settings = replace(SETTINGS, own_optimizer="mine:it")
    layer = torch.nn.Linear(3, 5)
    own = optimizer([layer], settings, torch.device("cpu"))
    layer(torch.ones(1, 3)).sum().backward()
    with pytest.raises(BadInput, match=says):
        own.step()


@pytest.mark.parametrize(
    "model",
    [LLAMA, GPT, PLAIN_EXPERTS, replace(LLAMA, qk_norm=True)],
    ids=lambda m: m.name,
)
def test_matrices_decay_and_biases_and_norms_do_not(model: Any) -> None:
    """By name, independently of `decays`: every weight but a norm's; no bias, though those of
    experts have two dims.
    """
    stage = Decoder(model, range(model.layers), SEQ)
    groups = optimizer([stage], SETTINGS, torch.device("cpu")).param_groups
    decay = {
        id(p): group["weight_decay"]
        for group in groups
        for p in group["params"]
    }
    names = {name: decay.pop(id(p)) for name, p in stage.named_parameters()}
    assert not decay, "each once"
    for name, found in names.items():
        spared = "norm" in name or name.endswith("bias")
        assert found == (0.0 if spared else SETTINGS.weight_decay), name
    if model is PLAIN_EXPERTS:
        assert (
            names["layers.0.ffn.experts.up.bias"] == 0
            and names["layers.0.ffn.router.weight"] > 0
        )


def test_a_checkpoint_before_the_first_update_goes_on_as_if_it_were_not_there(
    tmp_path: Path,
) -> None:
    """Saved with no step done, loaded, stepped: the bits of a run without either; on fused AdamW
    too.
    """

    def work(device: torch.device) -> None:
        losses = []
        for saved in (False, True):
            trainer = Trainer(
                job(LLAMA, Layout(dp=1, microbatch=8)), SETTINGS, device
            )
            for group in trainer.optimizer.param_groups:
                group["fused"] = True
            if saved:
                assert (
                    checkpoint.load(
                        trainer, checkpoint.save(trainer, tmp_path, 0, keep=1)
                    )
                    == 0
                )
            losses.append(
                [
                    trainer.step(step, *share(trainer, tokens(step))).loss
                    for step in range(3)
                ]
            )
        assert losses[0] == losses[1]

    fork_ranks(work, 1, timeout_s=120)
