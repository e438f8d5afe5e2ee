"""A grid on a cluster of Dask on this machine (pip install distributed) is the plain one."""

from __future__ import annotations

import pytest

from meshwright import Job, Layout
from meshwright.grid import engine_at, grid

distributed = pytest.importorskip("distributed")
JOB = Job("llama3-8b", "64xh100-sxm", 512, Layout(tp=2, dp=32))
AXES = [("tp", ["1", "2", "4", "8"]), ("microbatch", ["1", "2", "4"])]


@pytest.mark.filterwarnings("ignore")
def test_a_local_cluster_finds_the_same() -> None:
    plain = grid(JOB, AXES, fixed=True, workers=1)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, dashboard_address=None
    ) as cluster:
        place = cluster.scheduler_address.partition("://")[2]
        found = grid(
            JOB, AXES, fixed=True, engine=engine_at(f"dask://{place}")
        )
    assert found.rows == plain.rows and len(found.rows) == 12
