"""What the paper prints, as data (`published/epoch.toml`): tables 2, 3 and 4, the numbers of
section 5, appendix 8.3 and figure 9. Texts have the digits of the paper.

Source: Erdil & Schneider-Joseph 2024, arXiv 2411.01137.
"""

from __future__ import annotations

from ... import shipped

PRINTED = shipped.shipped_table("published/epoch.toml")
LINEAR: dict[str, dict[str, list[str]]] = PRINTED["linear"]
"""Where -> scenario -> printed ends of linear scaling, dense and, in tables, sparse."""
EXAMPLE_WIDTH = 53248.0
"""Of the dense H100 run at the end of linear scaling, which is shown in full."""
SCENARIOS: dict[str, dict[str, str]] = PRINTED["scenarios"]
"""Figure -> label -> scenario."""
