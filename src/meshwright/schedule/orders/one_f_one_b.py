"""1F1B (PipeDream-Flush): after a short warm up, one forward, one backward, so that activations are
freed early.

    bubble = (p - 1) (f + i + w)        exact for all p, m: GPipe's
    in flight = min(p - r, m)           on rank r

Source: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.1, figure 4 top.
"""

from __future__ import annotations

from ..looped import flush_bubble, looped

ONE_F_ONE_B = looped(
    "1f1b",
    "1F1B",
    "Narayanan et al. 2021, arXiv 2104.04473",
    hop=1,
    split=False,
    closed=flush_bubble,
    torch_name="1F1B",
)(0)
