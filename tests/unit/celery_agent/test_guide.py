"""The guide to the Celery protection agrees with the code."""

import re
from dataclasses import fields

from controlplane.agent.celery.options import CeleryOptions
from tests.support.standin import ROOT

GUIDE = (ROOT / "docs/reference/celery.md").read_text()


def test_the_guide_lists_exactly_the_options_of_the_code():
    table = GUIDE.partition("## Settings")[2].partition("\n## ")[0]
    listed = {name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert listed == {field.name for field in fields(CeleryOptions)} - {"url", "token"}


def test_the_guide_has_the_defaults_of_the_code():
    table = GUIDE.partition("## Settings")[2].partition("\n## ")[0]
    for field in fields(CeleryOptions):
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert f"| `{field.name}` | {field.default:g} |" in table
