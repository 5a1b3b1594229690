"""The documentation is true: links, commands, paths, alerts and metrics exist. Its sentences and lines are short."""

import re
import shlex
from functools import cache

import pytest
import yaml
from django.core.management import get_commands, load_command_class

from controlplane.client.parser import build_parser, client_commands
from controlplane.observability.metrics import COUNTERS, HISTOGRAMS
from tests.support.pages import CODE, DOCS, PAGES, SHELLS, name_of
from tests.support.processes import ROOT

FOLLOWED = {"backup.md", "keys.md", "runbook.md", "upgrade.md"}
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")


@pytest.fixture(params=PAGES, ids=name_of)
def page(request):
    return request.param


def anchors(page):
    """Return the anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_link_leads_to_a_page_and_to_a_heading_that_are_there(page):
    for path, anchor in LINK.findall(CODE.sub("", page.read_text())):
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {path}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {path}#{anchor}"


def test_every_page_is_found_from_the_readme_or_the_index():
    found, unread = set(), [ROOT / "README.md", DOCS / "index.md", DOCS / "decisions/index.md"]
    for page in unread:
        found |= {(page.parent / path).resolve() for path, _ in LINK.findall(page.read_text()) if "://" not in path}
    assert set(PAGES) <= found | set(unread), sorted(map(str, set(PAGES) - found))


def test_every_command_can_be_given_as_it_stands(page):
    for line in commands(page.read_text().replace(" --database controlplane", "")):
        _, word, *rest = shlex.split(line.partition("<")[0])
        ours = word != "manage" and word in client_commands()
        if word == "manage":
            word, *rest = rest
        if not re.fullmatch(r"[a-z_-]+", word):
            continue
        assert ours or word in get_commands(), line
        if rest or page.name in FOLLOWED:  # elsewhere a single word is a name
            if ours:
                parser().parse_args([word, *rest])
            else:
                parser_of_command(word).parse_args(rest)


@cache
def parser():
    return build_parser("controlplane")


@cache
def parser_of_command(word):
    return load_command_class(get_commands()[word], word).create_parser("controlplane", word)


def commands(text):
    """Return the commands in shell code and in inline code."""
    shell = "".join(code for language, code in CODE.findall(text) if language in SHELLS).replace("\\\n", " ")
    inline = re.findall(r"`((?:controlplane|manage\.py) [^`]+)`", CODE.sub("", text))
    return [*inline, *re.findall(r"(?<!-n )(?<![\w-])((?:controlplane|manage\.py) (?!shell)[a-z][^|&;)#>\n]*)", shell)]


def test_what_is_yaml_on_a_page_can_be_read(page):
    for language, code in CODE.findall(page.read_text()):
        if language == "yaml":
            assert yaml.safe_load(code)


def test_there_is_a_section_for_each_alert_and_a_row_for_each_metric():
    runbook = (DOCS / "how-to/runbook.md").read_text()
    metrics = (DOCS / "reference/metrics.md").read_text()
    (group,) = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yml").read_text())["groups"]
    alerts = [rule["alert"] for rule in group["rules"]]
    assert re.findall(r"^## (ControlPlane\w+)$", runbook, re.MULTILINE) == alerts
    rows = dict(re.findall(r"^\| `(controlplane_\w+)[^`]*` \|.*\| ([^|]*) \|$", metrics, re.MULTILINE))
    assert {f"controlplane_{name}_total" for name in COUNTERS} <= set(rows)
    assert {f"controlplane_{name}" for name in HISTOGRAMS} <= set(rows)
    for metric, watched in rows.items():
        for alert in re.findall(r"ControlPlane\w+", watched):
            rule = next(rule for rule in group["rules"] if rule["alert"] == alert)
            assert metric in rule["expr"], f"{alert}: {metric}"


def test_a_page_has_no_long_sentence_and_no_long_line(page):
    text = page.read_text()
    assert not [line for line in text.splitlines() if len(line) > 300]
    prose = re.sub(r"^ *(#|\||<).*$", "", CODE.sub("\n", text), flags=re.MULTILINE)
    for sentence in re.split(r"(?<=[.!?])\s|\n\s*\n|\n\s*(?:[-*]|\d\.)\s", prose):
        words = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", sentence)).split()
        assert len(words) <= 30, f"{len(words)} words: {sentence}"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= 6 * 1024


def test_the_architecture_names_files_that_exist():
    text = CODE.sub("", (DOCS / "architecture.md").read_text())
    paths = set(re.findall(r"`((?:controlplane|jobs|liveness|templates|tests|deploy)/[\w/.-]*)`", text))
    assert len(paths) > 60
    assert not [path for path in paths if not (ROOT / path).exists()]
