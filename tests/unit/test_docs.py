"""The pages in docs/ name what is there: each other, commands, alerts, metrics."""

import re
import shlex

import pytest
import yaml
from django.core.management import get_commands, load_command_class

from controlplane.client.parser import build_parser, client_commands
from controlplane.observability.metrics import COUNTERS, HISTOGRAMS
from tests.support.processes import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
FOLLOWED = {"backup.md", "runbook.md", "upgrade.md"}
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


def test_every_command_can_be_given_as_it_stands(page):
    for line in commands(page.read_text().replace(" --database controlplane", "")):
        _, word, *rest = shlex.split(line.partition("<")[0])
        ours = word != "manage" and word in client_commands()
        if word == "manage":
            word, *rest = rest
        if not re.fullmatch(r"[a-z_-]+", word):
            continue
        assert ours or word in get_commands(), line
        if rest or page.name in FOLLOWED:  # elsewhere a word alone is a name
            if ours:
                build_parser("controlplane").parse_args([word, *rest])
            else:
                load_command_class(get_commands()[word], word).create_parser("controlplane", word).parse_args(rest)


def commands(text):
    """What is in the shell's code, to the end of the command, and what is code within a sentence."""
    shell = "".join(code for language, code in CODE.findall(text) if language == "sh").replace("\\\n", " ")
    inline = re.findall(r"`((?:controlplane|manage\.py) [^`]+)`", CODE.sub("", text))
    return [*inline, *re.findall(r"(?<!-n )(?<![\w-])((?:controlplane|manage\.py) [a-z][^|&;)#\n]*)", shell)]


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
