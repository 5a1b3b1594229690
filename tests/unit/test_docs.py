"""The pages in docs/ name what is there: each other, commands, alerts, metrics."""

import re
import shlex

import pytest
import yaml
from django.core.management import get_commands

from controlplane.client.parser import build_parser
from controlplane.observability.metrics import COUNTERS, HISTOGRAMS
from tests.support.processes import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request):
    return request.param


def anchors(page):
    """The anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_link_leads_to_a_page_and_to_a_heading_that_are_there(page):
    for path, anchor in LINK.findall(CODE.sub("", page.read_text())):
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {path}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {path}#{anchor}"


def test_every_page_is_found_from_the_readme():
    linked = {path for path, _ in LINK.findall((ROOT / "README.md").read_text())}
    assert {f"docs/{page.name}" for page in PAGES[1:]} <= linked


def test_every_command_is_one_of_the_client_or_of_the_management(page):
    known = client_commands() | {*get_commands()}
    text = page.read_text()
    shell = "".join(code for language, code in CODE.findall(text) if language == "sh")
    inline = re.findall(r"`((?:controlplane|manage\.py) [^`]+)`", CODE.sub("", text))
    lines = [*inline, *re.findall(r"(?<!-n )(?<![\w-])((?:controlplane|manage\.py) [a-z][\w-]*)", shell)]
    for line in lines:
        _, word, *rest = shlex.split(line.partition("<")[0])
        word = rest[0] if word == "manage" else word
        assert word in known or not re.fullmatch(r"[a-z_-]+", word), line


def client_commands():
    subcommands = [
        action.choices for action in build_parser("controlplane")._actions if isinstance(action.choices, dict)
    ]
    return {name for choices in subcommands for name in choices}


def test_what_is_yaml_on_a_page_can_be_read(page):
    for language, code in CODE.findall(page.read_text()):
        if language == "yaml":
            assert yaml.safe_load(code)


def test_the_runbook_has_a_section_for_each_alert_and_a_row_for_each_metric():
    runbook = (ROOT / "docs/runbook.md").read_text()
    (group,) = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yml").read_text())["groups"]
    alerts = [rule["alert"] for rule in group["rules"]]
    assert re.findall(r"^## (ControlPlane\w+)$", runbook, re.MULTILINE) == alerts
    rows = dict(re.findall(r"^\| `(controlplane_\w+)[^`]*` \|.*\| ([^|]*) \|$", runbook, re.MULTILINE))
    assert {f"controlplane_{name}_total" for name in COUNTERS} <= set(rows)
    assert {f"controlplane_{name}" for name in HISTOGRAMS} <= set(rows)
    for metric, watched in rows.items():
        for alert in re.findall(r"ControlPlane\w+", watched):
            rule = next(rule for rule in group["rules"] if rule["alert"] == alert)
            assert metric in rule["expr"], f"{alert}: {metric}"
