"""Rule of the pages' templates: a screen reader gets a name for each figure, and skips the pictures of legends."""

import re

from tests.support.processes import ROOT

TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))


def test_each_figure_has_a_name_and_legends_hide_their_pictures():
    figures = [(path.name, tag) for path in TEMPLATES for tag in re.findall(r"<figure[^>]*>", path.read_text())]
    assert len(figures) >= 5
    assert [(name, tag) for name, tag in figures if "aria-label" not in tag] == []
    captions = [text for path in TEMPLATES for text in re.findall(r"(?s)<figcaption.*?</figcaption>", path.read_text())]
    pictures = [tag for caption in captions for tag in re.findall(r"<svg[^>]*>", caption)]
    assert pictures
    assert [tag for tag in pictures if 'aria-hidden="true"' not in tag] == []
