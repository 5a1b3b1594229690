"""The report of `make bench` is readable in a terminal of 80 columns."""

import math

from tests.bench.report import build_report, format_number
from tests.bench.rows import Row

COSTS = {"cpu_us": 1234.5, "reference_cpu_us": 987.6, "p50_ms": 12.34, "p99_ms": 1456.7}
ROWS = [
    Row("heartbeats", 12345.6, "/s", 4567.8, "a plain DRF view: one UPDATE by key", "≥ 0.5", COSTS),
    Row("claim, 50,000 sets of tags", 12.3, "ms", 4.56, "the same claim " * 6, "≤ 1.2 once claims are rebuilt"),
    Row("django_tasks_restart_at_once", 2.5, "s", math.nan, "django-tasks, which cannot be had: no network", "≤ 1"),
    Row("idle", 2.1, "% of a core", 1.4, "a web server without workers", "≤ 5 % of a core"),
]


def test_no_line_is_longer_than_80_columns_and_every_name_is_whole():
    lines = build_report(ROWS).split("\n")
    assert max(map(len, lines)) <= 80
    for row in ROWS:
        assert sum(line.startswith(f"{row.bench} ") for line in lines) == 1


def test_the_reference_of_each_row_fills_at_most_three_lines():
    lines = build_report(ROWS).split("\n")[1:]
    starts = [number for number, line in enumerate(lines) if not line.startswith(" ")]
    assert len(starts) == len(ROWS)
    assert max(end - start for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)) <= 4


def test_all_that_a_row_has_is_in_the_report():
    text = " ".join(build_report(ROWS[:1]).split())
    assert "heartbeats 12,346 4,568 /s 2.70" in text
    assert "goal ≥ 0.5; reference: a plain DRF view: one UPDATE by key; CPU 1,234 / 988 µs" in text
    assert "p50 / p99 12.3 / 1,457 ms" in text


def test_numbers_are_never_in_scientific_notation():
    assert [format_number(number) for number in (0.0123, 12.34, 999.4, 123456.7)] == [
        "0.0123", "12.3", "999", "123,457",
    ]  # fmt: skip
