"""What an optimizer does beside one pass over its state, and the answers that say what is left
out.
"""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import Job, Layout, catalog, predict
from meshwright.count.optimizer import newton_schulz, orthogonal_flops
from meshwright.describe.job import OPTIMIZERS

MUON, ADAMW = OPTIMIZERS["muon"], OPTIMIZERS["adamw"]


@pytest.mark.parametrize("shape", [(8, 8), (4, 32), (32, 4)])
def test_newton_schulz_multiplies_as_often_as_its_products(
    shape: tuple[int, int],
) -> None:
    """Run it: X (transposed if it is tall) keeps its shape, and every product of an iteration
    counts 2 a multiply-add.
    """
    a, b, c = 3.4445, -4.7750, 2.0315  # Jordan et al. 2024
    x, flops = np.random.default_rng(1).normal(size=shape), 0
    x = (x.T if shape[0] > shape[1] else x) / np.linalg.norm(x)

    def times(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        nonlocal flops
        flops += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return left @ right

    for _ in range(5):
        gram = times(x, x.T)
        x = a * x + times(b * gram + c * times(gram, gram), x)
    assert newton_schulz(*shape, 5) == flops
    # it is orthogonal, roughly
    assert 0.5 < np.linalg.svd(x, compute_uv=False).min() < 1.5


def test_muon_says_what_it_leaves_out() -> None:
    def said(optimizer: object) -> list[str]:
        job = Job(
            "llama3-70b",
            "64xh100-sxm",
            64,
            optimizer=optimizer,
        )  # type: ignore[arg-type]
        return [
            note
            for note in predict(job, Layout(tp=8, pp=8, dp=1)).to_dict()[
                "notes"
            ]
            if "Newton-Schulz" in note
        ]

    assert not said(ADAMW)
    (note,) = said(MUON)
    assert (
        "without its 5 Newton-Schulz iterations" in note
        and "8 B of state for every parameter" in note
    )
    assert (
        f"{orthogonal_flops(catalog.model('llama3-70b'), 5):.3g} FLOPs" in note
    )


@pytest.mark.parametrize(
    ("name", "layout", "said"),
    [
        ("gemma3-27b", Layout(cp=8, dp=1), True),
        ("gemma3-27b", Layout(tp=8, dp=1), False),
        ("llama3-8b", Layout(cp=8, dp=1), False),
    ],
)
def test_keys_of_windows_are_gathered_whole_and_it_is_said(
    name: str, layout: Layout, said: bool
) -> None:
    job = Job(name, "8xh200", 8, seq=131072)
    notes = [
        note
        for note in predict(job, layout).notes
        if "keys and values of all 131,072 tokens" in note
    ]
    assert bool(notes) == said
