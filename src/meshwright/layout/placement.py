"""Where the ranks of each axis lie in the network unless a layout says so: tp nearest, then cp, dp,
pp, as launchers number ranks.
"""

from __future__ import annotations

from ..describe.frozen import FrozenDict, changed
from ..describe.job import Job
from ..describe.layout import AXES, Layout
from ..num import Num, product


def placed(
    layout: Layout, sizes: tuple[int, ...], order: tuple[str, ...] = AXES
) -> Layout:
    """The layout with its placement filled in: axes in `order` take the fast dimensions first, as
    launchers number ranks.

    layout: scalar degrees;  sizes: members of each network dimension (`Cluster.sizes`). A placement
    given stays as it is. Shares are whole where that fits the last dimension; else ranks are
    numbered through, and the share of dp beyond a dimension is a fraction (97 ranks in nodes of 8:
    12.125).
    """
    if layout.placement:
        return layout
    placement = _shares(layout, sizes, order, whole=True)
    if product([shares[-1] for shares in placement.values()]) > sizes[-1]:
        placement = _shares(layout, sizes, order, whole=False)
    return changed(layout, placement=FrozenDict(placement))


def _shares(
    layout: Layout,
    sizes: tuple[int, ...],
    order: tuple[str, ...],
    whole: bool,
) -> dict[str, tuple[Num, ...]]:
    """Shares of each axis in each dimension; whole: only those that divide the degree."""
    left = [float(size) for size in sizes]
    placement: dict[str, tuple[Num, ...]] = {}
    for axis in order:
        need = float(getattr(layout, axis))
        shares = []
        for i in range(len(sizes) - 1):
            room = int(left[i])
            take = (
                next(
                    d
                    for d in range(int(min(room, need)), 0, -1)
                    if need % d == 0
                )
                if whole or axis != "dp"
                else max(min(room, need), 1)
            )
            shares.append(int(take))
            need /= take
            left[i] = left[i] // take
        placement[axis] = (*shares, int(need) if need == int(need) else need)
    return placement


def launched(job: Job) -> tuple[tuple[str, ...], ...]:
    """Orders of the axes in which the launcher of the job's framework numbers ranks, where the job
    names one; empty: any placement.
    """
    said = job.framework.orders if job.framework else ()
    return tuple(tuple(order.split("-")) for order in said)


def lies(
    layout: Layout, sizes: tuple[int, ...], order: tuple[str, ...]
) -> bool:
    """The ranks lie in that order of the axes, nearest first."""
    if not layout.placement:
        return order == AXES
    bare = changed(layout, placement=FrozenDict())
    made = placed(bare, sizes, order).placement
    return all(
        tuple(made[a]) == tuple(layout.placement[a]) for a in layout.placement
    )
