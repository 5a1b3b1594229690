"""JSON values as the pages show them."""

import json

import pytest

from controlplane.console.presenters.contents import format_json


@pytest.mark.parametrize("number", [10**300, -7 * 10**22, 12345 * 10**299])
def test_a_number_with_many_zeros_is_shown_with_an_exponent(number):
    shown = format_json({"n": [number, str(number)]})
    assert shown == json.dumps({"n": [float(number), str(number)]}, indent=2)
    assert "e+" in shown


@pytest.mark.parametrize("number", [True, 10**21, 2**64, 10**23 + 1, int("9" * 300), 10**400, 1e-300, 0.1])
def test_all_digits_of_other_numbers_are_shown(number):
    assert format_json(number) == json.dumps(number)
