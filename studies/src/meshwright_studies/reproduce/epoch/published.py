"""What the paper prints, as data: tables 2, 3 and 4, the numbers of section 5, appendix 8.3 and
figure 9.

Source: Erdil & Schneider-Joseph 2024, arXiv 2411.01137. Each number has the digits the paper gives
it.
"""

from __future__ import annotations

from meshwright.limits.closed_forms import Setting

LINEAR = {
    "table 3": {
        "v100": ("3e27", "2e27"),
        "a100": ("3e28", "2e29"),
        "h100": ("2e28", "7e28"),
    },
    "table 4": {
        "h100-low-latency": ("1e29", "7e28"),
        "h100-global-nvlink": ("4e29", "7e29"),
        "h100-global-nvlink-low-latency": ("5e31", "1e32"),
        "h100-infinite-low-latency": ("9e31", "6e32"),
    },
}
"""End of linear scaling [FLOP], dense and sparse. Table 4 repeats the H100 row of table 3."""
WALL = "2e31"
"""Largest dense run within three months, today's latencies (sections 5.2 and 6.2)."""
FIGURE_9 = {"h100": "2e28", "h100-deepseek": "3e33"}
FIGURE_9_ORDERS = "5.2"
"""Orders of magnitude between the two."""
PLATEAU = {"v100": "0.90", "a100": "0.85", "h100": "0.70"}
"""Utilisation that a GPU sustains, where the curves of figure 6 start."""

TABLE_2 = {
    # node: (C [MAC/s], B_net, B_DRAM, S [words]) -> printed d', b', T [FLOP]
    "DGX-1 V100": ((5.00e14, 2.5e10, 1.8e12, 151e6), ("26.7e3", "278", "1e27")),
    "DGX A100": ((1.25e15, 1e11, 3.11e12, 366e6), ("16.7e3", "401", "3e28")),
    "DGX H100": ((3.96e15, 2e11, 6.704e12, 487e6), ("26.4e3", "591", "2e28")),
    "DGX H100 SuperPOD": ((3.96e15, 9e11, 6.704e12, 487e6), ("5.9e3", "16", "1e34")),
}  # fmt: skip
"""Inputs as the paper's table implies them, and what it prints."""
EXPONENTS = {"dp": 1 / 4, "pp": 1 / 4, "tp": 1 / 2}
"""Section 3.3: degrees that send least grow as these powers of the number of GPUs."""
WALLS = (1e28, 1e31)
ORDERS_BELOW = 100.0
"""The first wall over the largest run to date (abstract)."""
YEARS = ("3", "7")
"""Until the walls, "about", at 4.2 times a year."""
SETTING = Setting()
"""Of the closed forms."""
FIGURE_5_FLOOR_US = "4.5"
"""Launch of a product (figure 5, whose measurements are not public)."""

EQUATION_15 = "3e30"
LIMIT_FLOPS = "2e31"
LIMIT_PARAMETERS = "4e14"
"""Equations 18 and 17."""
APPENDIX_LIMIT = "3e36"
"""Appendix 8.3: the largest run if b/L grows with an exponent of 0.2."""
APPENDIX_EXPONENT = 0.2
APPENDIX_ORDERS = "3"
"""Appendix 8.3: orders of magnitude that exponent adds to the end of linear scaling."""
BALANCED_SQUARE = "896"
"""Section 4.1.1: side of the square FP8 product that balances the HBM of an H100, at 1e15
multiply-adds/s and 3.35e12 B/s."""

GEMM_US = (
    ("epoch-a100", (12288, 6144, 2048), "1171.04"),
    ("epoch-a100", (1024, 1024, 1024), "12.601"),
    ("epoch-h100", (3072, 6144, 16384), "897.475"),
    ("epoch-h100", (1024, 1024, 1024), "7.6006"),
    ("epoch-v100", (1024, 1024, 1024), "23.500"),
    ("epoch-v100", (256, 256, 256), "4.797"),
    ("epoch-a100", (256, 256, 256), "4.669"),
    ("epoch-h100", (256, 256, 256), "4.581"),
)
"""Microseconds of forward products (out, inner, tokens): an independent implementation of the
paper's chip model.
"""

EXAMPLE = {
    "flops": "2.048e28",
    "layers": "576",
    "parameters": "1.3065e13",
    "batch_tokens": "25165824",
    "chips": "8388608",
    "matmul_s": ".37204",
    "tp_s": ".39749",
    "p2p_s": ".00081",
    "dp_s": ".03177",
    "step_s": ".43007",
    "utilisation": ".55267",
    "months": "1.699",
}
"""The dense H100 run of width 53,248: the first below the threshold. From the same independent
implementation.
"""
EXAMPLE_WIDTH = 53248.0
RENT_1E30_USD = 1e12
"""Section 6.3.1: a run of 1e30 FLOP costs more than a trillion dollars at 3.5 USD an hour."""
