"""How ranks are numbered, so that they lie where a placement puts them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..describe.layout import AXES, Layout

OUTER_FIRST = tuple(reversed(AXES))
"""pp, dp, cp, tp: the axis that talks least varies slowest."""

EXPERTS = ("pp", "edp", "ep", "etp")
"""The axes of experts: replicas, ranks that share them out, parts of one. They borrow the ranks of
dp x cp x tp, in every network dimension.
"""


def grid(
    layout: Layout, axes: tuple[str, ...] = OUTER_FIRST
) -> NDArray[np.int64]:
    """ranks[pp, dp, cp, tp], or over the axes of experts. Ranks are numbered through the fastest
    network dimension first, and in it through tp first.

    layout: placed (`layout.placed`). With tp = 2 and dp = 2 in each of two nodes of 4, ranks 0 and
    1 are a tp group.
    """
    shares = {
        axis: [int(share) for share in layout.group(axis)] for axis in axes
    }
    dims = len(shares["pp"])
    count = len(axes)
    ranks = np.arange(int(np.prod(list(shares.values()))))
    fine = [
        shares[axis][dim] for dim in reversed(range(dims)) for axis in axes
    ]
    by_axis = [dim * count + k for k in range(count) for dim in range(dims)]
    return (
        ranks.reshape(fine)
        .transpose(by_axis)
        .reshape([int(np.prod(shares[axis])) for axis in axes])
    )
