"""A matrix that is embedding on one rank and head on another: who exchanges its gradients."""

from __future__ import annotations

import pytest

from meshwright import Job, Layout
from meshwright.program.messages import of_tied


@pytest.mark.parametrize("chips", [2, 4])
def test_the_two_stages_exchange_the_whole_matrix_once(chips: int) -> None:
    layout = Layout(pp=2, dp=chips // 2)
    job = Job("gpt2-small", f"{chips}xh100-sxm", 8, layout)
    m = job.model
    for rank in (0, 1):
        sent = of_tied(job, rank, 0)
        ((kind, axis, size),) = sent
        wanted = ("send", "pp", m.vocab * m.hidden * 4)
        assert (kind, axis, size) == wanted
        assert list(sent.values()) == [1]
