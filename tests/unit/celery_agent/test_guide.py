"""The guide says what is there."""

import re
from dataclasses import fields

from controlplane.agent.celery.options import Options
from tests.support.standin import ROOT

GUIDE = (ROOT / "docs" / "celery.md").read_text()


def test_every_option_is_in_the_guide_and_every_one_in_the_guide_is_there():
    table = GUIDE.partition("## Settings")[2].partition("\n## ")[0]
    listed = {name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert listed == {field.name for field in fields(Options)} - {"url", "token"}


def test_the_defaults_in_the_guide_are_those_of_the_options():
    table = GUIDE.partition("## Settings")[2].partition("\n## ")[0]
    for field in fields(Options):
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert f"| `{field.name}` | {field.default:g} |" in table
