"""Meshwright: plan, predict and run distributed training of transformers.

    from meshwright import Job, Layout, cluster, model, predict
    job = Job(model("llama3-8b"), cluster("64xh100-sxm"), batch=512, layout=Layout(tp=1, dp=64, zero=3))
    print(predict(job).step_time_s)

Names are loaded when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ._version import __version__

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
    "prediction": ("Prediction", "predict"),
    "terms": ("Term",),
    "errors": ("BadInput", "MeshwrightError", "NoLayout"),
    "search": ("Plan", "Space", "plan"),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_WHERE)]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_WHERE[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
