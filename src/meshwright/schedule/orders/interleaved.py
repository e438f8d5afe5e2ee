"""Interleaved 1F1B: v chunks per device shorten every step of the pipeline, and with it the bubble,
to 1/v.

    bubble = (p - 1) (f + i + w) / v            exact for all p, v and groups of g >= p
    bubble = (vp - 1 - (v-1) m) (f + i + w) / v with m < p, which are one group
    in flight = min(m, ((v-1) g + 2p - 1)/v)    on rank 0: (v-1) g + 2 (p-1) warm-up
                                                forwards and one more, 1/v each

The price: v times the messages between stages, and (p - 1)/v more activations than 1F1B.

Source: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.2, figure 4 bottom.
"""

from __future__ import annotations

from ..looped import flush_bubble, looped

INTERLEAVED = looped(
    "interleaved",
    "Interleaved 1F1B",
    "Narayanan et al. 2021, arXiv 2104.04473",
    hop=2,
    split=False,
    closed=flush_bubble,
    plain="1f1b",
    torch_name="Interleaved1F1B",
)(0)
