"""Report that `make bench` prints: readable at 80 columns, two or three lines per benchmark."""

import math
from collections.abc import Mapping
from textwrap import wrap

from tests.bench.rows import Row

HEAD = ("benchmark", "measured", "reference", "unit", "ratio")
INDENT = " " * 4


def build_report(rows: list[Row], width: int = 80) -> str:
    """Return the rows as text. Under the figures of each row are its goal, its reference and its other costs."""
    cells = [HEAD, *map(figures_of, rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(HEAD))]
    lines = [align(HEAD, widths)]
    for row, figures in zip(rows, cells[1:], strict=True):
        lines += [align(figures, widths), *wrap(describe(row), width, initial_indent=INDENT, subsequent_indent=INDENT)]
    return "\n".join(lines)


def figures_of(row: Row) -> tuple[str, ...]:
    return row.bench, format_number(row.value), format_number(row.reference), row.unit, format_ratio(row.ratio)


def align(cells: tuple[str, ...], widths: list[int]) -> str:
    name, measured, reference, unit, ratio = cells
    padded = [name.ljust(widths[0]), measured.rjust(widths[1]), reference.rjust(widths[2]), unit.ljust(widths[3])]
    return "  ".join([*padded, ratio.rjust(widths[4])])


def describe(row: Row) -> str:
    goal = f"goal {row.goal}; " if row.goal else ""
    return f"{goal}reference: {row.against}{describe_costs(row.more)}"


def describe_costs(more: Mapping[str, float]) -> str:
    """Return CPU time per unit (and that of the reference), and the response times."""
    cpu = [f"{format_number(more[name])}" for name in ("cpu_us", "reference_cpu_us") if name in more]
    delays = [f"{format_number(more[name])}" for name in ("p50_ms", "p99_ms") if name in more]
    texts = [f"CPU {' / '.join(cpu)} µs"] if cpu else []
    texts += [f"p50 / p99 {' / '.join(delays)} ms"] if delays else []
    texts += [f"{format_number(more['kb'])} kB"] if "kb" in more else []
    return "".join(f"; {text}" for text in texts)


def format_ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if math.isfinite(ratio) else "-"


def format_number(number: float) -> str:
    """Return a number with thousands separators, or with three significant digits if it is smaller."""
    if not math.isfinite(number):
        return "-"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
