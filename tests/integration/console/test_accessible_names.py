"""Names that a screen reader reads: no two buttons of a page have the same one unless they do the same."""

import re
from collections import defaultdict
from html import unescape

import pytest

from jobs.models import Hold, LimitRule
from tests.support.executions import step

PAGES = "/admin/instance/"
BUTTON = re.compile(r"<(?:a|button|summary)\b[^>]*>.*?</(?:a|button|summary)>", re.DOTALL)
APPROVAL = {"type": "approval", "message": "Ship it?"}


def targets_by_name(html):
    """Return the addresses of the buttons of a page, by accessible name."""
    found = defaultdict(set)
    for element in BUTTON.findall(html.partition('<main id="content"')[2]):
        head = element.partition(">")[0]
        if 'class="button' not in head:
            continue
        named = re.search(r'aria-label="([^"]*)"', head)
        name = named[1] if named else " ".join(re.sub(r"<[^>]+>", "", element).split())
        assert "…" not in name.rstrip("…"), name
        address = re.search(r'(?:href|formaction|data-copy)="([^"]*)"', head)
        found[unescape(name)].add(address[1] if address else element)
    return found


@pytest.mark.django_db
def test_no_two_buttons_of_a_page_have_the_same_name(staff, submit, worker, api, begin):
    operator = staff("change_maintenance", "add_apitoken", "delete_apitoken", "change_limitrule", "answer_execution")
    one = worker(max_concurrent=10)
    for name in ("red", "blue"):
        submit(tags=[name], unmatched="wait")
        submit(limits=[name])
        begin(step("ask", action=APPROVAL), name=name)
        Hold.objects.create(kind="tag", value=f"{name}-tag", by="operator:o")
        LimitRule.objects.create(pattern=name, namespace="default", running=1, by="operator:o")
        api("viewer")
    one.claim(limit=10)
    buttons = 0
    for page in ("queues", "limits", "holds", "tokens", "alerts", "maintenance", "answers", "jobs"):
        found = targets_by_name(operator.get(f"{PAGES}{page}/").content.decode())
        assert {name: targets for name, targets in found.items() if len(targets) > 1} == {}, page
        buttons += len(found)
    assert buttons > 20
