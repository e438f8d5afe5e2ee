"""A matrix that is embedding on one rank and head on another: who sums its gradients."""

from __future__ import annotations

import pytest

from meshwright import Job, Layout, cluster, model
from meshwright.program.messages import of_tied


@pytest.mark.parametrize(("chips", "group"), [(2, "world"), (4, "pair")])
def test_two_ranks_in_all_are_everybody(chips: int, group: str) -> None:
    layout = Layout(pp=2, dp=chips // 2)
    job = Job(model("gpt2-small"), cluster(f"{chips}xh100-sxm"), 8, layout)
    found = {rank: of_tied(job, rank, 0) for rank in (0, 1)}
    m = job.model
    for sent in found.values():
        ((kind, axis, size),) = sent
        assert (kind, axis, size) == (
            "all_reduce",
            group,
            m.vocab * m.hidden * 4,
        )
