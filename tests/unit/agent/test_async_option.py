"""The option `--async` is refused where it cannot keep its promise."""

import pytest

from controlplane.agent.command_line import build_parser
from controlplane.agent.options import read_options

GIVEN = ["--url", "http://localhost:8000", "--token", "t", "--allow", "callable"]


def read(*options):
    return read_options(build_parser().parse_args([*GIVEN, *options]))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--async", "0"), "--async 0 must be from 1 to 1000"),
        (("--async", "1001"), "--async 1001 must be from 1 to 1000"),
        (("--async", "2", "--isolation", "process"), "cannot be used with --isolation process"),
        (("--async", "2", "--memory-limit", "1G"), "use --max-memory-per-child instead"),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_be_right(options, why):
    with pytest.raises(ValueError, match=why):
        read(*options)


def test_the_slots_are_those_of_all_processes_and_all_functions_run_in_them():
    options = read("--concurrency", "2", "--async", "50")
    assert (options.slots, options.description()["max_concurrent"], options.isolation) == (100, 100, "pool")


def test_without_the_option_nothing_changes():
    options = read("--concurrency", "2")
    assert (options.slots, options.isolation) == (2, None)
