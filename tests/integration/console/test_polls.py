"""Polls of an open page: unchanged parts are not sent again, and ended rows are not polled."""

import gzip

import pytest

from tests.support.executions import step

HOME = "/admin/instance/"
POLL = {"HX-Request": "true"}


def poll(reader, page, shown=None):
    return reader.get(page, headers=POLL | ({"If-None-Match": shown} if shown else {}))


def test_a_poll_without_changes_is_empty(reader, worker, submit, clock):
    submit()
    worker().hold()
    page = f"{HOME}jobs/"
    first = poll(reader, page)
    assert first.status_code == 200 and "data-age" in first.text and "RUNNING" in first.text
    clock.advance(1)
    second = poll(reader, page, first["ETag"])
    assert (second.status_code, second.content) == (204, b""), "the page counts ages and run times by itself"
    submit()
    third = poll(reader, page, first["ETag"])
    assert third.status_code == 200 and third["ETag"] != first["ETag"]


def test_a_poll_of_a_changed_page_has_the_whole_live_part(reader, worker, submit):
    job = submit()
    page = f"{HOME}jobs/{job['id']}/"
    first = poll(reader, page)
    worker().hold()
    second = poll(reader, page, first["ETag"])
    assert second.status_code == 200 and "RUNNING" in second.text


def test_the_page_of_an_ended_job_stops_polling(reader, worker, submit):
    job, one = submit(), worker()
    page = f"{HOME}jobs/{job['id']}/"
    assert poll(reader, page).status_code == 200
    assert "every 3s" in reader.get(page).text
    one.complete(one.hold())
    last = poll(reader, page)
    assert last.status_code == 286 and "COMPLETED" in last.text
    assert "every 3s" not in reader.get(page).text and "Pause" not in reader.get(page).text


def test_the_page_of_an_ended_execution_stops_polling(reader, begin, do):
    run = begin(step("a"))
    page = f"{HOME}executions/{run.id}/"
    assert poll(reader, page).status_code == 200
    do("a")
    assert poll(reader, page).status_code == 286


@pytest.mark.parametrize("headers", [{}, POLL])
def test_pages_and_polls_are_compressed_for_who_asks(reader, worker, headers):
    for number in range(20):
        worker(name=f"worker-{number}")
    plain = reader.get(f"{HOME}servers/", headers=headers)
    packed = reader.get(f"{HOME}servers/", headers={"Accept-Encoding": "gzip", **headers})
    assert packed["Content-Encoding"] == "gzip" and "Content-Encoding" not in plain
    assert len(packed.content) < len(plain.content) / 3
    assert b"worker-19" in gzip.decompress(packed.content)


def test_lists_of_the_api_are_compressed_for_who_asks(api, submit):
    for _ in range(20):
        submit()
    answer = api("viewer").get("/jobs", **{"Accept-Encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"
    assert len(gzip.decompress(answer.content)) > 3 * len(answer.content)


def test_a_compressed_poll_without_changes_is_empty(reader, worker):
    worker()
    first = reader.get(f"{HOME}servers/", headers={"Accept-Encoding": "gzip", **POLL})
    again = {"Accept-Encoding": "gzip", "If-None-Match": first["ETag"], **POLL}
    assert reader.get(f"{HOME}servers/", headers=again).status_code == 204
