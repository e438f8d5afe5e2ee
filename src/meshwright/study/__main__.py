"""python -m meshwright.study: every axis beside its equations, what a rank calls in one step, and
the pipelines drawn; --lose 1 breaks them all.
"""

from __future__ import annotations

import argparse
import sys

from .check import BOUND, Beside, Row, study
from .picture import picture


def beside(pair: Beside | None, width: int, digits: int) -> str:
    numbers = ["", ""] if pair is None else [f"{x:,.{digits}f}" for x in pair]
    return "".join(f"{number:>{width}}" for number in numbers)


def called(row: Row) -> str:
    calls = [
        f"{n:4g} {name}" for name, n in sorted(row.calls.items(), reverse=True)
    ]
    return f"{row.axis:28}{''.join(calls)}"


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m meshwright.study")
    parser.add_argument(
        "--lose",
        type=int,
        default=0,
        metavar="N",
        help="let the N-th message that reaches a rank arrive as zeros",
    )
    rows = study(parser.parse_args().lose)
    heads = f"{'bytes a rank sends':>20}{'bubble':>16}{'B a weight':>16}"
    print(f"{'':28}{heads}{'error of':>19}")
    columns = (
        f"{'equation':>10}{'counted':>10}" + f"{'eq.':>8}{'count':>8}" * 2
    )
    print(f"{'axis':28}{columns}{'loss':>9}{'gradient':>10}")
    for row in rows:
        numbers = beside(row.sent, 10, 0) + beside(row.bubble, 8, 4)
        numbers += beside(row.held, 8, 2)
        print(f"{row.axis:28}{numbers}{row.loss_error:9.0e}{row.error:10.1e}")
    print(
        "\ncalls of a rank: RS reduce-scatter, AG all-gather (an all-reduce is"
        " both), A2A all-to-all,\nP2P message to another stage"
    )
    for row in rows:
        print(called(row))
    for p, m, v in ((4, 4, 1), (2, 4, 2)):
        print(f"\npp {p}, {m} microbatches, chunks a rank: {v}")
        print(picture(p, m, v))
    wrong = [
        row.axis
        for row in rows
        if not (row.error < BOUND and row.loss_error < BOUND)
    ]
    if wrong:
        print(f"not what one process computes: {'; '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(_main())
