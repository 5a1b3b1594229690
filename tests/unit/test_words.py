"""Times on the pages."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.console import formatting

MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)
NOW = MIDNIGHT + timedelta(minutes=3)


def visible_text(html):
    return re.sub(r"<[^>]+>", "", html)


@pytest.mark.parametrize(
    ("at", "expected"),
    [(MIDNIGHT, "00:00:00.000"), (MIDNIGHT - timedelta(seconds=1), "Nov 20 23:59:59"), (NOW, "00:03:00.000")],
)
def test_a_time_on_another_day_has_the_day(at, expected):
    assert visible_text(formatting.format_moment(at, NOW)) == expected
    assert formatting.format_time_of_day(at, NOW) == expected.partition(".")[0]


def test_a_countdown_and_an_age_have_their_time():
    for left in (formatting.seconds_until(90, NOW), formatting.time_until(NOW + timedelta(seconds=90), NOW)):
        assert visible_text(left) == "1 min 30 s"
        assert 'datetime="2026-11-21T00:04:30+00:00" title="2026-11-21 00:04:30 UTC" data-left="90.0"' in left
    for age in (formatting.seconds_since(200, NOW), formatting.time_since(NOW - timedelta(seconds=200), NOW)):
        assert visible_text(age) == "3 min 20 s"
        assert 'datetime="2026-11-20T23:59:40+00:00" title="2026-11-20 23:59:40 UTC" data-age="200.0"' in age
