"""Meshwright: plan, predict and run distributed training of transformers.

    from meshwright import Job, plan, predict
    job = Job("llama3-70b", "1024xh100-sxm", batch="4Mi", tokens="15T")
    print(predict(job, tp=8, pp=4, zero=1).explain())
    print(plan(job, tp=[4, 8], framework="torchtitan").answer.layout)

Names are loaded when first used, so that importing the package costs next to nothing; type checkers
read them at once. A function keeps its name where a room has the same: `meshwright.sweep(...)` is
called, `from meshwright.sweep import SweepPoint` takes more of the room.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from ._version import __version__ as __version__

_HOME = {
    "describe.model": ("MLA", "Model", "MoE"),
    "describe.chip": ("Chip", "Hierarchy"),
    "describe.network": ("Dim", "Network"),
    "describe.cluster": ("Cluster",),
    "describe.layout": ("Layout",),
    "describe.choices": ("Choices",),
    "describe.job": ("Optimizer", "Precision"),
    "describe.assumptions": ("Assumptions", "assumptions"),
    "catalog": ("chip", "network"),
    "formats.export": ("export",),
    "formats.resolve": ("cluster", "model"),
    "count.model": ("model_flops", "parameters"),
    "formats.toml": ("Job", "dump_job", "load_job"),
    "prediction": ("Prediction", "predict"),
    "prediction.replay": ("Replay", "timeline"),
    "prediction.table": ("Table", "table"),
    "prediction.term": ("Term",),
    "compare": ("Comparison", "compare"),
    "grid": ("Grid",),
    "limits.answer": ("Limits", "limits"),
    "roofline.queries": ("Roofline", "roofline"),
    "sweep": ("Sweep", "sweep"),
    "errors": ("BadInput", "MeshwrightError", "NoLayout"),
    "search": ("Plan", "Space", "plan"),
    "advice.answer": ("Advice", "advise"),
    "trace.module": ("model_of",),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_WHERE)]

if TYPE_CHECKING:  # the same names once more, with their types
    from .advice.answer import Advice as Advice
    from .advice.answer import advise as advise
    from .catalog import chip as chip
    from .catalog import network as network
    from .compare import Comparison as Comparison
    from .compare import compare as compare
    from .count.model import model_flops as model_flops
    from .count.model import parameters as parameters
    from .describe.assumptions import Assumptions as Assumptions
    from .describe.assumptions import assumptions as assumptions
    from .describe.chip import Chip as Chip
    from .describe.chip import Hierarchy as Hierarchy
    from .describe.choices import Choices as Choices
    from .describe.cluster import Cluster as Cluster
    from .describe.job import Job as Job
    from .describe.job import Optimizer as Optimizer
    from .describe.job import Precision as Precision
    from .describe.layout import Layout as Layout
    from .describe.model import MLA as MLA
    from .describe.model import Model as Model
    from .describe.model import MoE as MoE
    from .describe.network import Dim as Dim
    from .describe.network import Network as Network
    from .errors import BadInput as BadInput
    from .errors import MeshwrightError as MeshwrightError
    from .errors import NoLayout as NoLayout
    from .formats.export import export as export
    from .formats.resolve import cluster as cluster
    from .formats.resolve import model as model
    from .formats.toml import dump_job as dump_job
    from .formats.toml import load_job as load_job
    from .grid import Grid as Grid
    from .limits.answer import Limits as Limits
    from .limits.answer import limits as limits
    from .prediction.prediction import Prediction as Prediction
    from .prediction.prediction import predict as predict
    from .prediction.replay import Replay as Replay
    from .prediction.replay import timeline as timeline
    from .prediction.table import Table as Table
    from .prediction.table import table as table
    from .prediction.term import Term as Term
    from .roofline.queries import Roofline as Roofline
    from .roofline.queries import roofline as roofline
    from .search.answer import Plan as Plan
    from .search.plan import plan as plan
    from .search.space import Space as Space
    from .sweep import Sweep as Sweep
    from .sweep import sweep as sweep
    from .trace.module import model_of as model_of
else:

    class Package(ModuleType):
        """A package whose public names outlast the import of a room of the same name."""

        def __setattr__(self, name, value):
            if not (name in _WHERE and isinstance(value, ModuleType)):
                super().__setattr__(name, value)

    sys.modules[__name__].__class__ = Package

    def __getattr__(name):
        if name not in _WHERE:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}"
            )
        from functools import partial
        from importlib import import_module

        display = import_module(".describe.display", __name__)
        if not display.LOADERS:
            display.LOADERS.append(
                partial(import_module, ".report.display", __name__)
            )
        value = getattr(import_module(f".{_WHERE[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
