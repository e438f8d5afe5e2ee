"""The MLP block in two dimensions: the paper's totals, and no communication where nothing is
cut.
"""

from dataclasses import replace

import numpy as np
import pytest

from meshwright import Job, Layout, Model, Space, plan, predict
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.mlp2d import block, mlp2d_parameters, training_flops
from meshwright.count.model import layer
from meshwright.describe.cluster import NOWHERE
from meshwright.describe.layers import kinds
from meshwright.layout.placement import placed
from meshwright.layout.rules import broken


def test_totals_of_the_paper() -> None:
    """FLOPs 12 b D F a block, as section 3.1 has them."""
    b, D, F, m, f = 4096.0, 1024.0, 4096.0, 4, 8
    ops = block(b, D, F, m, f, act=2.0, wgt=2.0)
    flops = sum(op.forward.matrix + op.backward.matrix for op in ops) * m * f
    assert flops == pytest.approx(training_flops(1, D, F) * b)
    assert sum(op.weights for op in ops) * m * f == mlp2d_parameters(
        1, 1, D, F
    )
    assert mlp2d_parameters(3, 4, 5, 6) == 2 * 3 * 4 * 5 * 6
    assert training_flops(3, 5, 6) == 12 * 3 * 5 * 6


def test_six_products() -> None:
    products = [
        p
        for op in block(1000.7, 64.0, 256.0, 2, 4, act=2.0, wgt=2.0)
        for half in (op.forward, op.backward)
        for p in half.products
    ]
    assert sum(p.weight_gradient for p in products) == 2 and len(products) == 6
    assert {(p.out, p.inner) for p in products} == {(64, 32), (32, 64)}
    assert {p.tokens for p in products} == {1000.7}


MLP = Model(
    "mlp",
    4,
    24,
    1,
    48,
    vocab=0,
    seq=10,
    pattern=("none",),
    gated=False,
    norm="nonparametric",
)


class Plane:
    """tp_model x tp_ff devices that carry out a block, and count the numbers that each receives."""

    def __init__(self, m: int, f: int) -> None:
        self.m, self.f, self.received = m, f, 0.0

    def all_reduce(self, parts: np.ndarray, over: int) -> np.ndarray:
        """Sums along a side of the plane, as a reduce-scatter and an all-gather: of n devices each
        receives n - 1 parts of its share of the sum, then the n - 1 shares of the others."""
        n = parts.shape[over]
        one = parts[0, 0].size
        self.received += self.m * self.f * 2 * (n - 1) * (one / n)
        whole: np.ndarray = np.broadcast_to(
            parts.sum(over, keepdims=True), parts.shape
        )
        return whole

    def cut(self, whole: np.ndarray, rows: str, columns: str) -> np.ndarray:
        """[m, f, ...]: the part of each device, cut along the sides that are named."""
        sizes = {"m": self.m, "f": self.f, "": 1}
        r, c = sizes[rows], sizes[columns]
        parts = whole.reshape(r, len(whole) // r, c, -1).swapaxes(1, 2)
        if columns == "m":
            parts = parts.swapaxes(0, 1)
        return np.broadcast_to(parts, (self.m, self.f, *parts.shape[2:]))


@pytest.mark.parametrize(("m", "f"), [(1, 1), (2, 2), (4, 2), (1, 3), (2, 1)])
def test_a_plane_that_carries_it_out_moves_as_many_words(
    m: int, f: int
) -> None:
    """Y = X W1 W2 and all gradients, device by device: the same numbers as on one, and as many words
    on the wires as the messages say, forward and backward: 4 b [F (n_m - 1) + D (n_f - 1)] received
    a block (section 3.1)."""
    b, D, F = 10, MLP.hidden, MLP.ffn
    rng = np.random.default_rng(0)
    X, dY = rng.normal(size=(2, b, D))
    W1, W2 = rng.normal(size=(D, F)), rng.normal(size=(F, D))
    on = Plane(m, f)
    x, dy = on.cut(X, "", "m"), on.cut(dY, "", "m")
    w1, w2 = on.cut(W1, "m", "f"), on.cut(W2, "f", "m")
    turned = (0, 1, 3, 2)

    h = on.all_reduce(x @ w1, 0)
    y = on.all_reduce(h @ w2, 1)
    forward = on.received
    dh = on.all_reduce(dy @ w2.transpose(turned), 0)
    dx = on.all_reduce(dh @ w1.transpose(turned), 1)
    backward = on.received - forward

    H, dH = X @ W1, dY @ W2.T
    assert np.allclose(y, on.cut(H @ W2, "", "m"))
    assert np.allclose(dx, on.cut(dH @ W1.T, "", "m"))
    assert np.allclose(h.transpose(turned) @ dy, on.cut(H.T @ dY, "f", "m"))
    assert np.allclose(x.transpose(turned) @ dh, on.cut(X.T @ dH, "m", "f"))
    layout = placed(
        Layout(scheme="mlp2d", cp=m, tp=f, dp=1, microbatch=1), (1, m * f)
    )
    job = Job(MLP, NOWHERE, 1, layout, assumptions="epoch-2024")
    ops = layer(job, layout, kinds(MLP)[0])
    ranks = {"tp_model": m, "tp_ff": f}

    def words(which: str) -> float:
        return sum(
            m * f * 2 * (n - 1) / n * x.bytes / 2.0
            for op in ops
            for x in getattr(op, which).comm
            for n in [ranks[x.axis]]
        )

    assert words("forward") == pytest.approx(forward)
    assert words("backward") == pytest.approx(backward)
    received = 4 * b * (F * (m - 1) + D * (f - 1))
    assert forward + backward == pytest.approx(received)
    assert {op.name: op.weights * m * f for op in ops} == {
        "ffn/up": D * F,
        "ffn/down": F * D,
    }
    # what lies between layers, on every device of tp_ff
    assert (
        DeviceMicrobatch.from_layout(job, layout).boundary == y[0, 0].size * 2
    )


def test_it_is_predicted_and_searched_as_any_scheme() -> None:
    """By hand, one MLP of 2 x 12288 x 49152 in 16 bits over tp_ff 8 (in a node), tp_model 4 (over
    nodes): weights are held by 32 chips, replicas are those of dp, and tensor traffic is that of
    both axes."""
    model = replace(MLP, layers=8, hidden=12288, ffn=49152, seq=2048)
    job = Job(model, "256xh100-sxm", 64, assumptions="epoch-2024")
    p = predict(job, Layout(tp=8, cp=4, dp=8, scheme="mlp2d", zero=1))
    weights = 8 * 2 * 12288 * 49152 / 32 * 2
    assert p.memory_bytes["weights"] == weights
    assert p.memory_bytes["optimizer"] == pytest.approx(
        weights / 2 * job.state_bytes / 8
    )
    assert p.layout.replicas == 8
    assert (p.layout.group("tp_ff"), p.layout.group("tp_model")) == (
        (8, 1),
        (1, 4),
    )
    assert p.time_s["tp_comm"] > 0 and p.time_s["cp_comm"] == 0
    asked = Space(scheme="mlp2d", cp=(1, 2, 4, 8), tp=(4, 8, 16))
    found = plan(job, asked, top=1)
    assert found.best and found.best.layout.scheme == "mlp2d"
    assert found.best.step_time_s <= p.step_time_s


def test_what_mlp2d_does_not_count() -> None:
    job = Job(MLP, "8xh100-sxm", 8, assumptions="epoch-2024")
    # 3 does not divide 10 tokens, which are not cut, but 24 features and 48
    layout = Layout(tp=2, cp=3, dp=1, scheme="mlp2d")
    assert broken(job, layout) == []
    (why,) = broken(job, replace(layout, cp=4, tp=1, dp=2, microbatch=5))
    assert "batch of 8 sequences" in why
    assert "hidden 24" in broken(job, replace(layout, cp=5, tp=1))[0]
    for other in ("llama3-8b", replace(MLP, gated=True)):
        (why,) = broken(
            replace(job, model=other), Layout(dp=1, scheme="mlp2d")
        )
        assert why.startswith("scheme mlp2d is defined only for feed-forwards")
