"""Where Hugging Face keeps each parameter (catalog/hf_weights.toml): our global name -> the name in
model.safetensors, and what the file does to the matrix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from ..describe import shipped


@dataclass(frozen=True)
class TensorPlace:
    """One tensor of a file, or a part of one."""

    name: str
    transposed: bool = False
    """The file has [in, out] (GPT-2's Conv1D), we have [out, in]."""
    part: int = 0
    """Which of `parts` equal parts along our first dimension (q, k, v of a fused matrix)."""
    parts: int = 1
    each: bool = False
    """One tensor for each of our first dimension (experts); `{e}` of the name is its number."""

    def named(self, number: int) -> str:
        """The tensor of one expert."""
        return self.name.replace("{e}", str(number))


Table = Mapping[str, TensorPlace]


@cache
def weight_tables() -> Mapping[str, Table]:
    """model_type of config.json -> the table of its parameters."""
    rows = shipped.shipped_table("hf_weights.toml")

    def places(name: str) -> dict[str, TensorPlace]:
        row = dict(rows[name])
        under = places(row.pop("is")) if "is" in row else {}
        return under | {
            ours: TensorPlace(theirs)
            if isinstance(theirs, str)
            else TensorPlace(**theirs)
            for ours, theirs in row.items()
        }

    return {name: places(name) for name in rows}


BODY = re.compile(r"(?:model|transformer)\.")
"""What files of a model without its head (and the first GPT-2 files) leave out of the names."""
BUFFERS = re.compile(r".*(?:rotary_emb\.inv_freq|\.attn\.(?:masked_)?bias)")
"""Constants that older files hold beside the weights."""


def weight_place(table: Table, ours: str) -> TensorPlace | None:
    """Where a parameter of ours stands; None if files of this family have no such thing."""
    layer = re.search(r"\.(\d+)\.", ours)
    row = table.get(re.sub(r"\.\d+\.", ".{}.", ours, count=1))
    if row is None or layer is None:
        return row
    return replace(row, name=row.name.replace("{}", layer[1]))
