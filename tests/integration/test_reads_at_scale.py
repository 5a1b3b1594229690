"""What the pages and the list calls cost where there is much to read."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs import selectors
from jobs.models import Attempt
from jobs.services import seeding
from liveness import selectors as liveness
from liveness.models import Server
from tests.integration.test_hot_paths import nodes

pytestmark = pytest.mark.django_db

PAGES = ["", "servers/{server}/", "jobs/", "jobs/?state=EXPIRED", "jobs/{job}/"]
CALLS = ["jobs?limit=500", "jobs?state=EXPIRED", "jobs?state=RUNNING&limit=500", "jobs?key=seed-10", "jobs?key=none",
         "jobs?kind=TRIGGER", "jobs/{job}", "servers?limit=500", "servers/{server}"]  # fmt: skip
LARGE = {"jobs_workerjob", "jobs_attempt", "jobs_latereport", "liveness_heartbeat", "liveness_serverevent"}
JOBS = 30_000


@pytest.fixture
def seeded(clock):
    def seed(servers, jobs):
        seeding.seed(servers, jobs)
        with connection.cursor() as cursor:
            cursor.execute(f"analyze {seeding.TABLES}")
        moved = Attempt.objects.filter(state="RESUBMITTED").first()
        return {"server": moved.server_id, "job": moved.job_id}

    return seed


def queries_of(get, path):
    with CaptureQueriesContext(connection) as queries:
        assert get(path).status_code == 200
    return [query["sql"] for query in queries]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_at_most_eight_queries(admin_client, seeded, page):
    ids = seeded(20, 400)
    assert len(queries_of(admin_client.get, f"/admin/instance/{page.format(**ids)}")) <= 8


@pytest.mark.parametrize("call", CALLS)
def test_a_list_call_is_at_most_five_queries_however_much_it_lists(api, seeded, call):
    ids = seeded(20, 2000)
    assert len(queries_of(api("operator").get, f"/{call.format(**ids)}")) <= 5


def test_no_page_and_no_list_call_walks_over_all_jobs(admin_client, api, seeded, monkeypatch):
    ids = seeded(300, JOBS)
    operator = api("operator")
    reads = [(admin_client.get, f"/admin/instance/{page}") for page in PAGES]
    reads += [(operator.get, f"/{call}") for call in CALLS]
    monkeypatch.setattr(selectors, "COUNTED", 100)
    costs = {path: walked(get, path.format(**ids)) for get, path in reads}
    assert not {path: cost for path, cost in costs.items() if cost > JOBS / 10}


def walked(get, path):
    """How many rows of the large tables a call looks at."""
    total = 0
    for query in queries_of(get, path):
        if not query.lower().startswith(("select", "with", "--")):
            continue
        with connection.cursor() as cursor:
            cursor.execute(f"explain (analyze, format json) {query}")
            (plan,) = cursor.fetchone()[0]
        for node in nodes(plan["Plan"]):
            if node.get("Relation Name") in LARGE:
                seen = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                total += seen * node["Actual Loops"]
    return total


def test_heartbeats_of_many_servers_are_one_query_by_the_index(seeded, django_assert_num_queries):
    seeded(300, 0 + 20)
    servers = list(Server.objects.values_list("pk", flat=True)[:100])
    with django_assert_num_queries(1):
        found = list(liveness.with_beats(Server.objects.filter(pk__in=servers), limit=5))
    assert {server.pk for server in found} == set(servers)
    assert all(len(server.beats) == 5 and server.beats == sorted(server.beats, reverse=True) for server in found)


def test_what_lives_is_counted_and_of_what_has_ended_it_is_said_about(seeded, monkeypatch):
    seeded(20, 2000)
    exact = selectors.figures()
    assert exact["about"] == []
    assert exact["counts"] == {"PENDING": 40, "CLAIMED": 2, "RUNNING": 18} | {
        state: exact["counts"][state] for state in ("COMPLETED", "FAILED", "CANCELLED", "EXPIRED")
    }
    assert sum(exact["counts"].values()) == 2000
    monkeypatch.setattr(selectors, "COUNTED", 30)
    rough = selectors.figures()
    assert set(rough["about"]) == {"COMPLETED", "FAILED", "CANCELLED"}
    for state, number in exact["counts"].items():
        assert rough["counts"][state] == pytest.approx(number, rel=0.2), state
    assert rough["counts"]["PENDING"] == 40
    assert rough["counts"]["EXPIRED"] == exact["counts"]["EXPIRED"]
