"""Checks and tables need no plotting library; only a picture that is written does."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
sys.meta_path.insert(0, Blocked())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """The code where matplotlib is not installed."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + code],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_every_paper_lists_its_figures_and_draws_none() -> None:
    done = run("""
from meshwright_studies.reproduce.epoch import FIGURES as epoch
from meshwright_studies.reproduce.lbl.plots import figures_in_order as lbl
from meshwright_studies.reproduce.megatron.plots import measuring_figures as megatron
from meshwright_studies.reproduce.scaling_book import FIGURES as book
print([len(found) > 3 for found in (epoch, lbl(()), megatron(), book)])
""")
    assert done.stdout == "[True, True, True, True]\n", done.stderr


def test_the_verb_works_and_a_picture_is_refused_in_a_sentence(
    tmp_path: object,
) -> None:
    done = run(f"""
from meshwright.cli import main as cli
print(cli.run(["reproduce", "scaling-book", "--json"]), cli.run(["reproduce", "scaling-book", "-o", {str(tmp_path)!r}]))
""")
    assert done.stdout.endswith("0 2\n"), done.stderr
    assert (
        done.stderr
        == "meshwright: figures need matplotlib: pip install 'meshwright[plot]'\n"
    )
