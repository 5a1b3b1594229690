"""Durations in the form that people write."""

import pytest

from controlplane.core.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (45, 45), (0, 0), (1.5, 1.5), ("45", 45), ("45s", 45), ("0.5s", 0.5), ("5m", 300), ("24h", 86400),
        ("30d", 2_592_000), (" 5m ", 300), ("5 m", 300), ("1.5h", 5400), ("none", None), ("None", None), (None, None),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_seconds(text, value):
    assert parse_duration(text) == value


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        " ",
        "soon",
        "5x",
        "5 minutes",
        "-5",
        "-5s",
        "1e3",
        "1h30m",
        "5mm",
        "m",
        ".5",
        "nan",
        "inf",
        True,
        False,
        [],
        {},
        b"5",
    ],
    ids=repr,
)
def test_what_is_no_duration_is_named_with_what_would_be_right(wrong):
    with pytest.raises(ValueError, match="45s, 5m, 24h, 30d") as refused:
        parse_duration(wrong)
    assert repr(wrong) in str(refused.value)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_no_length_of_time_is_refused(wrong):
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(wrong)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "none"), (0, "0s"), (45, "45s"), (0.5, "0.5s"), (60, "1m"), (90, "90s"), (300, "5m"), (3600, "1h"),
     (86400, "1d"), (90000, "25h"), (2_592_000, "30d")],
)  # fmt: skip
def test_seconds_are_written_shortly_and_read_back_the_same(value, text):
    assert format_duration(value) == text
    assert parse_duration(text) == value


@pytest.mark.parametrize("value", [1_234_567, 100_000_001, 0.1234567, 86400 * 366 + 1])
def test_no_second_is_lost_in_writing(value):
    assert parse_duration(format_duration(value)) == value
