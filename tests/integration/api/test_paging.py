"""Lists whose cursor is not an id of version 7: events and stale attempts."""

import pytest

from liveness.models import ServerEvent

pytestmark = pytest.mark.django_db


def pages(caller, path, **query):
    """Return every page of a list."""
    collected, cursor = [], None
    while True:
        parameters = {**query, **({"cursor": cursor} if cursor else {})}
        answer = caller.get(path + "?" + "&".join(f"{key}={value}" for key, value in parameters.items()))
        assert answer.status_code == 200, answer.json()
        collected.append(answer.json()["items"])
        cursor = answer.json()["next"]
        if cursor is None:
            return collected


def test_the_events_of_a_server_come_in_pages_and_none_twice_or_never(api, worker):
    one, operator = worker(), api("operator")
    for number in range(3):
        operator.post(f"/servers/{one.id}/cordon", {"note": f"c{number}"})
        operator.post(f"/servers/{one.id}/uncordon", {"note": f"u{number}"})
    shown = pages(api("viewer"), f"/servers/{one.id}/events", limit=3)
    assert [len(page) for page in shown] == [3, 3, 1]
    assert [event["reason"] for page in shown for event in page][1:] == ["c0", "u0", "c1", "u1", "c2", "u2"]


def test_more_events_than_a_page_may_have_are_all_reached(api, worker):
    one = worker()
    ServerEvent.objects.bulk_create(
        ServerEvent(
            subject_type="server",
            subject_id=one.id,
            server_id=one.id,
            action="cordon",
            actor="operator:x",
            reason=str(number),
        )
        for number in range(600)
    )
    shown = pages(api("viewer"), f"/servers/{one.id}/events", limit=500)
    assert [len(page) for page in shown] == [500, 101]


@pytest.mark.parametrize("query", ["limit=501", "limit=0", "cursor=x", "cursor=-1", "other=1"])
def test_a_page_of_events_that_is_none_is_a_400(api, worker, query):
    assert api("viewer").get(f"/servers/{worker().id}/events?{query}").status_code == 400


@pytest.fixture
def silent(worker, submit, clock):
    """Return five attempts on one worker, of different ages."""
    one = worker()
    attempts = []
    for number in range(5):
        submit()
        attempts.append(one.hold(running=number % 2 == 0)["id"])
        clock.advance(10)
        one.beat()
    return attempts


def test_what_is_stale_comes_in_pages_the_most_silent_first(api, silent):
    shown = pages(api("viewer"), "/recovery/stale", older_than_seconds=5, limit=2)
    assert [[item["attempt"] for item in page] for page in shown] == [silent[:2], silent[2:4], silent[4:]]


def test_pages_of_stale_attempts_continue_although_time_passes(api, silent, clock):
    viewer = api("viewer")
    first = viewer.get("/recovery/stale?older_than_seconds=5&limit=2").json()
    clock.advance(30)
    second = viewer.get(f"/recovery/stale?older_than_seconds=5&limit=2&cursor={first['next']}").json()
    assert [item["attempt"] for item in second["items"]] == silent[2:4]


def test_of_equally_silent_attempts_none_is_left_out(api, worker, submit, clock):
    one = worker()
    for _ in range(5):
        submit()
    held = {attempt["id"] for attempt in one.claim()}
    clock.advance(10)
    shown = pages(api("viewer"), "/recovery/stale", older_than_seconds=1, limit=2)
    assert [len(page) for page in shown] == [2, 2, 1]
    assert {item["attempt"] for page in shown for item in page} == held


def test_one_threshold_holds_for_both_kinds_and_a_finer_one_takes_its_place(api, silent):
    def states(query):
        items = api("viewer").get(f"/recovery/stale?{query}").json()["items"]
        return sorted(item["state"] for item in items)

    assert states("older_than_seconds=15") == ["CLAIMED", "CLAIMED", "RUNNING", "RUNNING"]
    assert states("older_than_seconds=15&claimed_older_than_seconds=100") == ["RUNNING", "RUNNING"]
    assert states("running_older_than_seconds=45") == ["RUNNING"]


@pytest.mark.parametrize(
    "query",
    ["limit=501", "cursor=x", "cursor=1.0", "cursor=nan_0190b3c4-0000-7000-8000-000000000000", "older_than_seconds=-1",
     "older_than_seconds=nan", "cursor=1_x"],
)  # fmt: skip
def test_a_page_of_the_stale_that_is_none_is_a_400(api, query):
    assert api("viewer").get(f"/recovery/stale?{query}").status_code == 400
