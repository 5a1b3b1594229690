"""The program that builds the documentation as a site."""

import re
import runpy

import pytest

from tests.support.pages import DOCS
from tests.support.processes import ROOT

SITE = runpy.run_path(str(ROOT / ".ci/docs.py"))


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/a.js"></script>',
        "<script async src=//cdn.example/a.js>",
        '<link rel="stylesheet" href="https://fonts.example/css?family=A">',
        "<link href=https://fonts.example rel=preconnect>",
        '<img alt="" src="http://pictures.example/a.png">',
        '<div class="mermaid">',
        "@import 'https://fonts.example/a.css';",
        "@font-face{src:url(https://fonts.example/a.woff2)}",
    ],
)
def test_a_load_from_another_host_is_found(tmp_path, text):
    (tmp_path / "page.html").write_text(f"<html>{text}</html>")
    assert len(SITE["find_loads"](tmp_path)) == 1


@pytest.mark.parametrize(
    "text",
    [
        '<a href="https://www.example/">',
        '<script src="assets/a.js"></script><link rel="stylesheet" href="../a.css"><img src="/a.png">',
        '<link rel="canonical" href="https://docs.example/page/">',
        "a{background:url(a.svg)}b{background:url(data:image/svg+xml,x)}",
    ],
)
def test_links_and_own_files_are_no_loads(tmp_path, text):
    (tmp_path / "page.html").write_text(f"<html>{text}</html>")
    assert not SITE["find_loads"](tmp_path)


def test_a_diagram_of_states_becomes_a_table():
    diagram = "```mermaid\nstateDiagram-v2\n    [*] --> A\n    A --> B : C / O\n    A --> C\n    C --> [*]\n```"
    assert SITE["DIAGRAM"].sub(SITE["tabulate"], diagram) == "| from | to |\n|---|---|\n| A | B (C / O), C |"


def test_every_page_is_in_the_navigation():
    config = (ROOT / ".ci/zensical.toml").read_text()
    for page in DOCS.rglob("*.md"):
        folder = page.parent.relative_to(DOCS).as_posix()
        listed = SITE["list_pages"](DOCS, folder) if re.search(rf'"{folder}"', config) else config
        assert f'"{page.relative_to(DOCS).as_posix()}"' in listed


def test_no_page_has_a_diagram_that_the_site_cannot_show():
    for page in DOCS.rglob("*.md"):
        assert "```mermaid" not in SITE["DIAGRAM"].sub("", page.read_text()), page
