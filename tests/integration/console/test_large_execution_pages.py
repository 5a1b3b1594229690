"""Page of an execution with hundreds of steps: few lanes, links to details, and every step reachable."""

import re
from html import unescape

import pytest
from django.db import connection

from controlplane.console.presenters import steps
from tests.support.executions import Run, step
from tests.support.plans import nodes
from tests.support.queries import CapturedQueries

pytestmark = pytest.mark.django_db


@pytest.fixture
def show(staff):
    browser = staff("rerun_execution", checks_csrf=False)

    def show(run, address=""):
        answer = browser.get(f"/admin/instance/executions/{run.id}/{address}")
        assert answer.status_code == 200
        return answer.content.decode()

    show.browser = browser
    return show


def lanes(page):
    """Return the labels of the lanes from top to bottom."""
    drawing = page.partition('id="lanes"')[2].partition("</figure>")[0]
    return [
        unescape(label)
        for label in re.findall(r'<text class="label(?: is-inner)?"[^>]*><title>.*?</title>(.*?)<', drawing)
    ]


def links(page, words):
    return [unescape(url) for url in re.findall(rf'href="([^"]*)"[^>]*aria-label="[^"]*{re.escape(words)}', page)]


def button(page, words):
    found = re.search(rf'<a href="([^"]*)">{words}</a>', page)
    return found and unescape(found[1])


def listed(page):
    return re.findall(r'<tr role="row" id="step-[^"]*"><th[^>]*><a [^>]*>([^<]*)', page)


def test_three_hundred_steps_need_few_lanes_and_a_failed_one_has_its_own(begin, do, show):
    run = begin(step("split"), *[step(f"shard-{n}", "split") for n in range(300)], step("merge", "shard-0"))
    do("split")
    do("shard-7", fails=True)
    page = show(run)
    assert lanes(page) == ["split", "shard-* × 300", "shard-7", "merge"]
    assert "1 FAILED" in page
    assert "299 CLAIMED" in page


def boxes(page):
    drawing = page.partition('<figure class="graph')[2].partition("</figure>")[0]
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawing), drawing.count('class="edge')


def test_the_graph_of_hundreds_of_steps_has_a_box_for_those_that_are_alike(begin, do, show):
    shards = [f"shard-{n}" for n in range(100)]
    run = begin(step("split"), *[step(key, "split") for key in shards], step("merge", *shards), step("aside"))
    do("split")
    page = show(run)
    assert boxes(page) == (["split", "shard-* × 100", "merge", "aside"], 2)
    assert page.count('class="edge is-passed"') == 1
    [opens] = re.findall(r'<a href="(\?open=[^"]*)"><g class="box s-PENDING">', page)
    assert "shard-99" in lanes(show(run, unescape(opens)))


def test_there_is_no_graph_if_folded_boxes_would_depend_on_each_other(begin, show):
    pairs = [[step(f"a{n}", *([f"b{n - 1}"] if n else [])), step(f"b{n}", f"a{n}")] for n in range(50)]
    assert boxes(show(begin(*[one for pair in pairs for one in pair]))) == ([], 0)


def test_a_fold_is_opened_and_folded_again_by_links(begin, show):
    run = begin(*[step(f"shard-{n}") for n in range(30)], step("last"))
    page = show(run)
    [opens] = links(page, "Open shard-*")
    page = show(run, opens)
    assert lanes(page) == ["shard-* × 30", *[f"shard-{n}" for n in range(30)], "last"]
    [folds] = links(page, "Close shard-*")
    assert lanes(show(run, folds)) == ["shard-* × 30", "last"]


def test_steps_that_are_not_alike_fold_with_their_neighbours(begin, do, show):
    keys = ["".join(letters) for letters in zip("abcdefghijklmnopqrstuvwxyz" * 4, "abcd" * 26, strict=True)]
    run = begin(*[step(key) for key in dict.fromkeys(keys)])
    do("aa", fails=True)
    assert lanes(show(run)) == ["aa", f"bb … zd × {len(set(keys)) - 1}"]
    do("cc", fails=True)
    do("ea")
    drawn = lanes(show(run))
    assert drawn[:4] == ["aa", "bb", "cc", "dd"]
    assert len(drawn) == 6


def test_a_time_range_shows_only_the_steps_active_in_it(begin, do, clock, show):
    run = begin(step("early"), *[step(f"shard-{n}", "early") for n in range(30)], step("late", "shard-1"))
    do("early")
    clock.advance(100)
    do("shard-1")
    clock.advance(20)
    do("late")
    page = show(run)
    assert lanes(page)[0] == "early"
    closer = show(run, "?from=105&to=115")
    assert "early" not in lanes(closer)
    assert "not drawn" in closer
    assert all(button(closer, words) for words in ("Closer", "Wider", "Earlier", "Later", "All"))
    assert lanes(show(run, button(closer, "All"))) == lanes(page)
    [*pieces] = links(page, "Closer: ")
    assert len(pieces) >= 2
    assert "early" in lanes(show(run, pieces[0]))
    assert "early" not in lanes(show(run, pieces[-1]))


@pytest.mark.parametrize(
    "address", ["?from=nan&to=5", "?from=5&to=1", "?from=-1&to=x", "?page=0", "?page=99999", "?state=X"]
)
def test_an_invalid_address_shows_the_whole_execution(begin, show, address):
    run = begin(step("a"), step("b"))
    assert lanes(show(run, address)) == ["a", "b"]


def test_a_failed_step_is_one_click_from_the_red_box_with_its_log_and_its_time(begin, do, show):
    run = begin(*[step(f"s{n}") for n in range(30)], on_error=[])
    do("s17", fails=True)
    page = show(run)
    box = page.partition('<section class="banner is-bad">')[2].partition("</section>")[0]
    job = run.step("s17")["job"]
    assert f'<a href="/admin/instance/jobs/{job}/">s17</a>: <strong>BAD</strong> no' in box
    assert f'href="/admin/instance/jobs/{job}/log/"' in box
    [around] = links(box, "Show s17 in the lanes")
    assert around.startswith("?") and around.endswith("#lanes")
    assert "s17" in lanes(show(run, around))


def test_failed_steps_are_listed_first_and_the_others_on_further_pages(begin, do, show):
    run = begin(*[step(f"s{n}") for n in range(250)])
    do("s249", fails=True)
    page = show(run)
    assert len(listed(page)) == 50
    assert listed(page)[0] == "s249"
    seen = set(listed(page))
    while following := button(page, "Next"):
        page = show(run, following)
        seen |= set(listed(page))
    assert seen == {f"s{n}" for n in range(250)}
    failed = show(run, button(page, "Failed 1"))
    assert listed(failed) == ["s249"]


def test_the_table_shows_the_duration_the_log_and_the_output_of_each_step(begin, do, clock, show):
    run = begin(step("a"))
    attempt = do.take()["a"]["id"]
    do.crew.report({"attempt": attempt, "event": "STARTED"})
    clock.advance(5)
    do.crew.report({"attempt": attempt, "event": "COMPLETED", "output": {"rows": 3}})
    page, job = show(run), run.step("a")["job"]
    assert "5.00 s" in page
    assert f'href="/admin/instance/jobs/{job}/log/"' in page
    assert f'href="/admin/instance/jobs/{job}/#output"' in page
    assert 'id="output"' in show.browser.get(f"/admin/instance/jobs/{job}/").content.decode()


def test_a_fold_marks_steps_of_a_silent_server(begin, do, clock, show):
    run = begin(*[step(f"s{n}") for n in range(30)])
    do.take()
    clock.advance(40)
    assert "30 CLAIMED, server silent" in show(run)


def test_an_execution_restarted_from_its_page_shows_the_kept_steps(begin, do, show):
    run = begin(step("a"), step("b", "a"))
    do("a", output=1)
    do("b", fails=True)
    page = show(run)
    assert "Retry failed steps…" in page
    address = f"/admin/instance/executions/restart/?pick={run.id}"
    assert "keeps completed steps" in show.browser.get(address).content.decode()
    done = show.browser.post(address, {"note": "fixed", "seen": f"{run.id} FAILED", "key": "k"})
    assert done.status_code == 302
    again = Run(run.client, done["Location"].split("/")[-2])
    page = show(again)
    assert "1 step is kept from it" in page
    assert lanes(page) == ["a", "b"]
    assert "COMPLETED, kept" in page
    earlier = f'href="/admin/instance/jobs/{run.step("a")["job"]}/'
    assert f'{earlier}">kept from the earlier run' in page
    assert f'{earlier}log/"' in page
    kept = show.browser.get(f"/admin/instance/jobs/{again.step('a')['job']}/").content.decode()
    assert "It did not run" in kept
    assert f'{earlier}"' in kept


def reads_needs(queries):
    return any("families as materialized" in query["sql"] for query in queries)


@pytest.mark.parametrize("address", ["", "?open=s%2A&from=0&to=50&state=PENDING&page=2"])
def test_the_page_takes_eight_queries_at_most_however_it_is_looked_at(begin, clock, show, address):
    run = begin(*[step(f"s{n}", *([f"s{n - 1}"] if n % 3 else [])) for n in range(400)])
    clock.advance(100)
    with CapturedQueries(connection) as queries:
        show(run, address)
    assert len(queries) <= 8
    with CapturedQueries(connection) as queries_of_a_poll:
        show(run, address)
    assert [reads_needs(queries), reads_needs(queries_of_a_poll)] == [True, False]


def test_the_page_of_a_large_execution_reads_few_rows(begin, do, show, monkeypatch):
    monkeypatch.setattr("controlplane.console.presenters.steps.STEPS_ALONE", 50)
    run = begin(step("split"), *[step(f"shard-{n}", "split") for n in range(300)], step("merge", "shard-0"))
    do("split")
    whole = show(run)
    for key in ("shard-7", "shard-9"):
        do(key, fails=True)
    read = []
    fetch = steps.fetch_result_sets

    def count(*statements, **params):
        found = fetch(*statements, **params)
        read.append(sum(map(len, found[:2])))
        return found

    monkeypatch.setattr(steps, "fetch_result_sets", count)
    page = show(run)
    assert lanes(whole) == ["split", "shard-* × 300", "merge"]
    assert lanes(page) == ["split", "shard-* × 300", "shard-7", "shard-9", "merge"]
    assert "2 FAILED" in page and "298 CLAIMED" in page
    assert boxes(page) == (["split", "shard-* × 300", "merge"], 2)
    assert read[0] <= 20 + 50
    assert len(listed(page)) == 50 and listed(page)[:2] == ["shard-7", "shard-9"]
    [opens] = links(page, "Open shard-*")
    assert len(lanes(show(run, opens))) == 103
    assert read[1] <= 120 + 50


def test_keys_without_numbers_form_families_of_neighbours_if_there_are_many(begin, show, monkeypatch):
    monkeypatch.setattr("controlplane.console.presenters.steps.STEPS_ALONE", 50)
    letters = "abcdefghijklmnopqrst"
    run = begin(*[step(f"{first}{second}") for first in letters for second in letters])
    show(run)
    with CapturedQueries(connection) as queries:
        drawn = lanes(show(run))
    assert len(drawn) <= 24
    assert sum(int(label.rpartition("× ")[2]) for label in drawn) == 400
    with connection.cursor() as cursor:
        cursor.execute("update pg_class set reltuples = 0, relpages = 1 where relname like 'jobs%' and relkind = 'r'")
    plans = [node for text in texts_about(run, queries) for node in plan_of(text)]
    reads = [node for node in plans if node.get("Relation Name") == "jobs_workerjob"]
    assert sum(node["Actual Rows"] * node["Actual Loops"] >= 400 for node in reads) == 1
    for node in plans:
        compared = node["Actual Rows"] + node.get("Rows Removed by Join Filter", 0)
        assert compared * node["Actual Loops"] <= 10 * 400, node


def texts_about(run, queries):
    texts = [text for query in queries for text in query["sql"].split(";\n")]
    return [text for text in texts if run.id in text or run.id.replace("-", "") in text]


def plan_of(text):
    with connection.cursor() as cursor:
        cursor.execute(f"explain (analyze, format json) {text}")
        [[[plan]]] = cursor.fetchall()
    return list(nodes(plan["Plan"]))


def test_the_lanes_look_up_attempts_only_of_steps_that_have_begun(begin, do, show):
    run = begin(step("split"), *[step(f"shard-{n}", "split") for n in range(300)])
    do("split")
    with connection.cursor() as cursor:
        cursor.execute("analyze jobs_workerjob, jobs_attempt")
    show(run)
    with CapturedQueries(connection) as queries:
        show(run)
    [lanes_read] = [text for text in texts_about(run, queries) if text.startswith("with times")]
    looked_up = [node for node in plan_of(lanes_read) if node.get("Relation Name") == "jobs_attempt"]
    assert looked_up
    assert all(node["Actual Loops"] <= 1 for node in looked_up)


def test_steps_added_after_the_first_look_are_in_the_graph(begin, show):
    run = begin(step("split"), *[step(f"shard-{n}", "split") for n in range(100)], sealed=False)
    assert boxes(show(run)) == (["split", "shard-* × 100"], 1)
    assert run.client.post(f"/executions/{run.id}/steps", {"steps": [step("merge", "shard-1")]}).status_code == 201
    assert boxes(show(run)) == (["split", "shard-* × 100", "merge"], 2)
