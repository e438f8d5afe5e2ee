"""What is exported through the tools' own readers: installs them, minutes each.

pytest -m parsers tests/formats/test_parsers.py                     (PARSERS=FOLDER keeps what is installed)
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def loaded() -> ModuleType:
    """benchmarks/parsers.py, which is no package."""
    spec = importlib.util.spec_from_file_location(
        "parsers", BENCHMARKS / "parsers.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["parsers"] = module
    spec.loader.exec_module(module)
    return module


PARSERS = loaded()
INSTALLED = [name for name, tool in PARSERS.TOOLS.items() if tool.packages]
"""Megatron-LM needs a checkout: benchmarks/parsers.py megatron --source megatron=FOLDER."""


@pytest.mark.parsers
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", INSTALLED)
def test_ten_best_plans_of_five_models_are_accepted(
    name: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    folder = Path(os.environ.get("PARSERS", tmp_path))
    accepted, written = PARSERS.checked(name, None, folder)
    assert accepted == written >= 10
