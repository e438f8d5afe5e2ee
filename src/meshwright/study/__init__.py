"""The study trainer: PTD-P as teaching text, one axis per file, on PyTorch alone. It
imports nothing of the product, and nothing of the product imports it.

Read `ring` and `model` first, then `tp`, `sp`, `pp`, `scatter_gather`, `zero`, `cp`, `ep`;
`equations` has the papers' formulas, `check` holds all of it beside one process. docs/study.md
walks through them.
"""
