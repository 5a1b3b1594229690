"""The time when running attempts of a lost server move is the same in recovery, lists, countdowns and pages."""

import re

import pytest

from jobs.models import Attempt
from jobs.selectors.servers import servers_by_attention
from jobs.services.liveness_check import check_liveness
from tests.support.people import employ, viewing

NEVER, AT_ONCE, AFTER = "NEVER", "IMMEDIATELY", "AFTER_TERMINATION_GRACE_PERIOD"


@pytest.fixture
def page(client, db):
    """Return the text of the page of a server."""
    user = employ()
    user.user_permissions.set(viewing())
    client.force_login(user)

    def page(one):
        html = client.get(f"/admin/instance/servers/{one.id}/").content.decode()
        return " ".join(re.sub(r"<[^>]*>", "", html).split())

    return page


@pytest.fixture
def holding(worker, submit):
    """Return a worker under a strategy, with a running job."""

    def holding(strategy, **fields):
        submit()
        one = worker(name=fields.pop("name", strategy), config={"worker_task_restart_strategy": strategy, **fields})
        one.hold()
        return one

    return holding


def disconnected(api, *workers):
    for one in workers:
        assert api("operator").post(f"/servers/{one.id}/disconnect", {"note": "x"}).status_code == 200


def in_order():
    return [server.name for server in servers_by_attention()]


def test_lost_servers_are_listed_in_the_order_in_which_their_jobs_move(holding, api):
    never, after, at_once = holding(NEVER), holding(AFTER), holding(AT_ONCE)
    sooner = holding(AFTER, name="sooner", termination_grace_period_seconds=100)
    disconnected(api, never, after, sooner, at_once)
    assert in_order() == [AT_ONCE, "sooner", AFTER, NEVER]
    assert [row["server"]["name"] for row in api("viewer").get("/instance").json()["attention"]] == in_order()


def test_a_server_that_is_silent_comes_before_those_whose_jobs_move_after_it_is_lost(holding, api, worker, clock):
    lost = holding(AFTER)
    disconnected(api, lost)
    worker(name="silent")
    clock.advance(30)
    assert in_order() == ["silent", AFTER]


def test_silent_servers_that_the_brake_holds_come_after_those_that_go(worker, clock, api):
    for number in range(4):
        worker(name=f"held-{number}", old=True)
    clock.advance(46)
    check_liveness()
    worker(name="goes", type="INDEXER", tags=[])
    clock.advance(7)
    assert in_order()[0] == "goes"


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (AT_ONCE, "In 45 s its timeout of 45 s ends. Then its running jobs move."),
        (AFTER, "In 5 min 45 s its grace period of 5 min ends. Then its running jobs move."),
        (NEVER, "Its running jobs stay with it, because its restart strategy is NEVER."),
    ],
)
def test_the_page_of_a_disconnected_server_shows_when_its_jobs_move(holding, api, page, clock, strategy, words):
    one = holding(strategy)
    disconnected(api, one)
    assert words in page(one)
    for seconds, state in ((44, "RUNNING"), (1, "RESUBMITTED" if strategy == AT_ONCE else "RUNNING")):
        clock.advance(seconds)
        check_liveness()
        assert Attempt.objects.get().state == state


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (AT_ONCE, "Its running jobs then move at once; claimed jobs move at once."),
        (AFTER, "Its running jobs then wait 5 min for its grace period; claimed jobs move at once."),
        (NEVER, "Its running jobs then stay with it (restart strategy NEVER); claimed jobs move at once."),
    ],
)
def test_the_page_of_an_alive_worker_shows_what_happens_to_its_jobs(holding, page, strategy, words):
    assert words in page(holding(strategy))
