"""Pages of loops, and of what a step was given."""

import pytest
from django.db import connection

from tests.support.executions import step
from tests.support.loops import child_of, loop
from tests.support.queries import CapturedQueries

pytestmark = pytest.mark.django_db

AT = "/admin/instance"


@pytest.fixture
def page(staff):
    browser = staff(checks_csrf=False)

    def page(path):
        answer = browser.get(f"{AT}/{path}")
        assert answer.status_code == 200
        return answer.content.decode()

    return page


def test_the_graph_shows_a_loop_as_one_box_with_counts(begin, do, page):
    run = begin(step("list"), loop(fail_fast=False))
    do("list", output=[1, 2, 3, 4])
    do("0", "1")
    do("2", fails=True)
    shown = page(f"executions/{run.id}/")
    assert shown.count('class="box') == 2
    assert "2 of 4 done, 1 failed" in shown
    assert f'href="{AT}/executions/{child_of(run).id}/"' in shown


def test_the_graph_shows_why_a_step_was_skipped(begin, do, page):
    run = begin(step("a"), step("b", "a", when="$.steps.a.output > 5"), step("c", "b"), step("d", "a"), step("e", "d"))
    do("a", output=1)
    do("d", fails=True)
    shown = page(f"executions/{run.id}/")
    for why in ("condition is false", "a step before skipped", "a step before failed"):
        assert why in shown


def test_the_page_of_a_step_shows_what_it_was_given_and_from_where(begin, do, page):
    run = begin(step("a.b"), step("c", "a.b", payload={"rows": {"from": '$.steps."a.b".output.rows', "default": 0}}))
    do("a.b", output={"rows": 4217})
    shown = page(f"jobs/{run.step('c')['job']}/")
    assert "4217" in shown and "Where its values came from" in shown
    assert "/rows" in shown and f'href="{AT}/jobs/{run.step("a.b")["job"]}/"' in shown


def test_the_page_of_an_item_links_the_step_of_its_list(begin, do, page):
    run = begin(step("list"), loop(payload={"n": {"from": "$.item.n"}}))
    do("list", output=[{"n": 4217}])
    shown = page(f"jobs/{child_of(run).step('0')['job']}/")
    assert "$.item.n" in shown and "$.steps.list.output[0]" in shown
    assert f'href="{AT}/jobs/{run.step("list")["job"]}/"' in shown


def test_the_page_of_a_loop_names_its_list(begin, do, page):
    run = begin(step("list"), loop())
    do("list", output=[1])
    shown = page(f"jobs/{run.step('each')['job']}/")
    assert "the list of its items" in shown and "$.steps.list.output" in shown


def test_a_step_without_values_of_others_has_no_table_of_origins(begin, page):
    run = begin(step("a", payload={"x": 1}))
    assert "Where its values came from" not in page(f"jobs/{run.step('a')['job']}/")


def test_the_page_of_a_parked_item_shows_what_it_waits_for(begin, do, page):
    run = begin(step("list"), loop(max_parallel=1))
    do("list", output=[1, 2])
    shown = page(f"jobs/{child_of(run).step('1')['job']}/")
    assert "It starts when other items of <code>each</code> have ended" in shown
    assert "Waiting for other items of each." in shown and "No alive server may run it" not in shown
    assert "Waiting for other items of each" in page("jobs/?state=PENDING")


def test_a_loop_of_a_thousand_items_needs_no_more_queries_than_any_execution(begin, do, page):
    run = begin(step("list"), loop())
    do("list", output=[0] * 1000)
    for path in (f"executions/{run.id}/", f"executions/{child_of(run).id}/"):
        with CapturedQueries(connection) as queries:
            page(path)
        assert len(queries) <= 8
