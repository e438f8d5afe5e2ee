"""Studies beside Meshwright: the papers' tables made again, predictions held against published
runs, the shared numbers fitted to them. Installed by `meshwright[studies]`: its verbs `reproduce`,
`validate` and `fit` appear in the command, and sets that only studies know get names.
"""

from __future__ import annotations

from importlib import import_module

from meshwright.describe.elsewhere import ELSEWHERE

ELSEWHERE["lbl-2024-code"] = lambda: (
    import_module("meshwright_studies.reproduce.lbl.defects").LBL_CODE
)
