"""How fast the chosen algorithm of each matrix product is, from the logs of the programs
(kernels/cuda/product.cpp)."""

import re

from stage import Skipped

TIMED = re.compile(
    r"timed (\d+) algorithms of (.+) \[(\d+), (\d+)\] x (\d+): ([\d.]+) us, the first ([\d.]+) us"
)


def show_timed(stage):
    """A line for each product: what the library's first algorithm takes, divided by the fastest."""
    found = [
        match
        for log in sorted(stage.check.logs.glob(f"{stage.name}-*.log"))
        for match in TIMED.findall(log.read_text(errors="replace"))
    ]
    if not found:
        raise Skipped("no product was timed")
    for count, operation, rows, columns, inner, fastest, first in found:
        stage.line(
            f"product of {operation} {rows}x{columns}x{inner}",
            "measured",
            figure=float(first) / max(float(fastest), 0.01),
            unit="x",
            detail=f"first algorithm {first} us, fastest of {count} {fastest} us",
        )
