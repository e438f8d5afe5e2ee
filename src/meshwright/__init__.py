"""Meshwright: plan, predict and run distributed training of transformers.

    from meshwright import Job, Layout, cluster, model, predict
    job = Job(model("llama3-8b"), cluster("64xh100-sxm"), batch=512, layout=Layout(tp=1, dp=64, zero=3))
    print(predict(job).step_time_s)

Names are loaded when first used, so that importing the package costs next to nothing; type checkers read them at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._version import __version__ as __version__

_HOME = {
    "spec.model": ("MLA", "Model", "MoE"),
    "spec.chip": ("Chip", "Hierarchy"),
    "spec.network": ("Dim", "Network"),
    "spec.cluster": ("Cluster",),
    "spec.layout": ("Layout",),
    "spec.job": ("Job", "Optimizer", "Precision"),
    "spec.assumptions": ("Assumptions", "assumptions"),
    "catalog": ("chip", "cluster", "model", "network"),
    "count.model": ("model_flops", "parameters"),
    "formats.toml": ("dump_job", "load_job"),
    "limits.roofline": ("Roofline", "roofline"),
    "prediction": ("Prediction", "predict"),
    "terms": ("Term",),
    "errors": ("BadInput", "MeshwrightError", "NoLayout"),
    "search": ("Plan", "Space", "plan"),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_WHERE)]

if TYPE_CHECKING:  # the same names once more, with their types
    from .catalog import chip as chip
    from .catalog import cluster as cluster
    from .catalog import model as model
    from .catalog import network as network
    from .count.model import model_flops as model_flops
    from .count.model import parameters as parameters
    from .errors import BadInput as BadInput
    from .errors import MeshwrightError as MeshwrightError
    from .errors import NoLayout as NoLayout
    from .formats.toml import dump_job as dump_job
    from .formats.toml import load_job as load_job
    from .limits.roofline import Roofline as Roofline
    from .limits.roofline import roofline as roofline
    from .prediction import Prediction as Prediction
    from .prediction import predict as predict
    from .search.plan import Plan as Plan
    from .search.plan import plan as plan
    from .search.space import Space as Space
    from .spec.assumptions import Assumptions as Assumptions
    from .spec.assumptions import assumptions as assumptions
    from .spec.chip import Chip as Chip
    from .spec.chip import Hierarchy as Hierarchy
    from .spec.cluster import Cluster as Cluster
    from .spec.job import Job as Job
    from .spec.job import Optimizer as Optimizer
    from .spec.job import Precision as Precision
    from .spec.layout import Layout as Layout
    from .spec.model import MLA as MLA
    from .spec.model import Model as Model
    from .spec.model import MoE as MoE
    from .spec.network import Dim as Dim
    from .spec.network import Network as Network
    from .terms import Term as Term
else:

    def __getattr__(name):
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f".{_WHERE[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
