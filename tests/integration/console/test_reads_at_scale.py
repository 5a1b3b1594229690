"""Costs of pages and list calls with many rows."""

import re
from contextlib import contextmanager

import pytest
from django.db import connection

from jobs import scan_window
from jobs.models import Attempt, Execution, WorkerJob
from jobs.permissions import VIEWS
from jobs.selectors import instance
from jobs.services import seeding
from liveness.models import OF_NAMESPACE, Server
from liveness.selectors.heartbeats import servers_with_beats
from liveness.services import tokens
from tests.support.people import employ
from tests.support.plans import nodes
from tests.support.queries import CapturedQueries

pytestmark = pytest.mark.django_db

PAGES = ["", "servers/{server}/", "jobs/", "jobs/?state=EXPIRED", "jobs/{job}/", "?cluster=north",
         "trends/?cluster=north", "maintenance/?cluster=north", "brake/?cluster=north"]  # fmt: skip
OTHERS = ["jobs/{waiting}/", "servers/", "jobs/errors/", "batches/", "recovery/", "alerts/", "trends/", "maintenance/",
          "queues/", "brake/", "servers/?cluster=north", "jobs/{job}/log/",
          "activity/?cluster=north&who=x"]  # fmt: skip
CALLS = ["jobs?limit=500", "jobs?state=EXPIRED", "jobs?state=RUNNING&limit=500", "jobs?key=seed-10", "jobs?key=none",
         "jobs?kind=TRIGGER", "jobs/{job}", "servers?limit=500", "servers/{server}",
         "instance?cluster=north", "instance/history?cluster=north"]  # fmt: skip
FILTERED = ["jobs/{job}/",
            "jobs/?tag=none", "jobs/?tag=gpu&state=COMPLETED", "jobs/?tag=none&state=COMPLETED", "jobs/?kind=TASK",
            "jobs/?server={server}", "jobs/?server={server}&state=FAILED", "jobs/?server=none", "jobs/?q=none",
            "jobs/?q=none&state=COMPLETED", "jobs/?q={job}", "jobs/?q=seed-10", "jobs/?q=none&server={server}",
            "quarantine/", "quarantine/?tag=none", "quarantine/?q=none", "quarantine/?server={server}",
            "activity/", "activity/?server=seed-worker-00001", "activity/?server=none", "activity/?who=none",
            "activity/?kind=action", "activity/?cluster=north",
            "activity/?kind=server&who=none",
            "activity/?before=2001-01-01T00:00:00Z"]  # fmt: skip
FILTERED_CALLS = ["jobs?tag=none", "jobs?tag=none&state=COMPLETED", "jobs?tag=gpu", "jobs?kind=TASK"]
OF_EXECUTIONS = ["executions/", "executions/?q=none", "executions/?state=FAILED", "executions/?q=none&state=COMPLETED",
                 "executions/?q={execution}", "executions/?q=k-1"]  # fmt: skip
CALLS_OF_EXECUTIONS = ["executions?name=none", "executions?name=rare", "executions?key=none", "executions?key=k-1",
                       "executions?state=FAILED"]  # fmt: skip
LARGE = {"jobs_workerjob", "jobs_attempt", "jobs_latereport", "jobs_execution", "liveness_heartbeat",
         "liveness_serverevent"}  # fmt: skip
JOBS = 30_000
HAPPENED = """
    insert into liveness_serverevent (at, subject_type, subject_id, action, actor, reason)
    select clock_timestamp() - make_interval(secs => %s - n), 'job', uuid7(), 'cancel_job', 'operator:' || n %% 9, ''
      from generate_series(1, %s) n
"""
EXECUTIONS = """
    insert into jobs_execution (root_id, owner_id, name, key, fingerprint, definition, open_steps, state, finished_at)
    select uuid7(), t.id, 'x' || n %% 10, case when n %% 2 = 1 then 'k-' || n end, '', '{}', 0, 'COMPLETED',
           clock_timestamp()
      from liveness_apitoken t, generate_series(1, %s) n
"""


@pytest.fixture
def seeded(clock):
    def seed(servers, jobs):
        seeding.seed_database(servers, jobs)
        with connection.cursor() as cursor:
            cursor.execute(f"analyze {seeding.TABLES}")
        moved = Attempt.objects.filter(state="RESUBMITTED").first()
        waiting = WorkerJob.objects.filter(state="PENDING").first()
        return {"server": moved.server_id, "job": moved.job_id, "waiting": waiting and waiting.pk}

    return seed


def queries_of(get, path):
    with CapturedQueries(connection) as queries:
        assert get(path).status_code == 200
    return [query["sql"] for query in queries]


READERS = {
    "an administrator": None,
    "who views all": VIEWS.values(),
    "who views servers and jobs": [VIEWS["server"], VIEWS["job"]],
    "who is of a namespace": [*VIEWS.values(), f"liveness.{OF_NAMESPACE}default"],
}


@pytest.fixture(params=READERS)
def reader(request, admin_client, client):
    """Make a user who reads the pages. Permissions are checked for all but the first."""
    tokens.make_permissions("default")
    may = READERS[request.param]
    client.force_login(employ(*may)) if may else None
    return client if may else admin_client


def test_a_page_takes_at_most_eight_queries_for_every_user(reader, seeded):
    ids = seeded(20, 400)
    for page in (*PAGES, *OTHERS, *FILTERED):
        queries = queries_of(reader.get, f"/admin/instance/{page.format(**ids)}")
        assert len(queries) <= 8, "\n".join([page, *(query[:150] for query in queries)])


def test_large_numbers_have_separators_of_thousands(admin_client, seeded):
    seeded(4_000, 4_000)
    shown = {page: admin_client.get(f"/admin/instance/{page}").text for page in ("", "servers/", "jobs/?kind=TASK")}
    assert re.search(r'class="value">\d,\d{3} <small>of \d,\d{3}<', shown[""])
    assert re.search(r"Workers: \d,\d{3} of \d,\d{3} alive", shown[""])
    assert re.search(r"1–20 of \d,\d{3}<", shown["servers/"])
    assert re.search(r'All <span\s+class="figure">(≥ )?\d,\d{3}<', shown["jobs/?kind=TASK"])
    assert not any(re.search(r'(figure">|value">|All |of |≥ )\d{4}|\b\d{4} of ', page) for page in shown.values())


def test_a_list_call_is_at_most_six_queries_however_much_it_lists(api, seeded):
    ids, operator = seeded(20, 2000), api("operator")
    for call in (*CALLS, *FILTERED_CALLS):
        assert len(queries_of(operator.get, f"/{call.format(**ids)}")) <= 6, call


@pytest.mark.exhaustive
def test_no_page_and_no_list_call_walks_over_all_jobs(admin_client, api, seeded, monkeypatch):
    ids = seeded(300, JOBS)
    operator = api("operator")
    reads = [(admin_client.get, f"/admin/instance/{page}") for page in PAGES]
    reads += [(operator.get, f"/{call}") for call in CALLS]
    monkeypatch.setattr(instance, "COUNT_LIMIT", 100)
    monkeypatch.setattr(scan_window, "SCAN_LIMIT", 300)
    costs = {path: walked(get, path.format(**ids)) for get, path in reads}
    assert not {path: cost for path, cost in costs.items() if cost > JOBS / 10}


@pytest.mark.exhaustive
@pytest.mark.parametrize("looked", [50, 300], ids=["a server with many attempts", "a server with few"])
def test_no_filtered_list_walks_over_all_that_it_is_of(admin_client, api, seeded, monkeypatch, looked):
    ids = seeded(300, JOBS)
    with connection.cursor() as cursor:
        cursor.execute(HAPPENED, [JOBS, JOBS])
        cursor.execute("analyze liveness_serverevent")
    monkeypatch.setattr(instance, "COUNT_LIMIT", 100)
    monkeypatch.setattr(scan_window, "SCAN_LIMIT", looked)
    operator = api("operator")
    reads = [(admin_client.get, f"/admin/instance/{page}") for page in FILTERED]
    reads += [(operator.get, f"/{call}") for call in FILTERED_CALLS]
    costs = {path: walked(get, path.format(**ids)) for get, path in reads}
    assert not {path: cost for path, cost in costs.items() if cost > JOBS / 10}


def test_no_list_of_executions_walks_over_all_of_them(admin_client, api, monkeypatch):
    api("client")
    with connection.cursor() as cursor, unguarded(cursor):
        cursor.execute(EXECUTIONS, [10_000])
        cursor.execute("analyze jobs_execution")
    monkeypatch.setattr(scan_window, "SCAN_LIMIT", 300)
    operator, one = api("operator"), Execution.objects.earliest("pk").pk
    reads = [(admin_client.get, f"/admin/instance/{page}") for page in OF_EXECUTIONS]
    reads += [(operator.get, f"/{call}") for call in CALLS_OF_EXECUTIONS]
    costs = {path: walked(get, path.format(execution=one)) for get, path in reads}
    assert not {path: cost for path, cost in costs.items() if cost > 1000}


@contextmanager
def unguarded(cursor):
    """Let rows begin in any state, for made-up data."""
    cursor.execute("set local session_replication_role = replica")
    yield
    cursor.execute("set local session_replication_role = origin")


def is_large(table):
    """Return True for the large tables and for their partitions."""
    return table in LARGE or table.startswith("liveness_heartbeat_")


def walked(get, path):
    """Return how many rows of the large tables a call reads."""
    total = 0
    statements = [text for query in queries_of(get, path) for text in query.split(";\n")]
    for query in statements:
        if not query.lower().startswith(("select", "with", "--")):
            continue
        with connection.cursor() as cursor:
            cursor.execute(f"explain (analyze, format json) {query}")
            (plan,) = cursor.fetchone()[0]
        for node in nodes(plan["Plan"]):
            if is_large(node.get("Relation Name") or ""):
                row_count = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                total += row_count * node["Actual Loops"]
    return total


def test_heartbeats_of_many_servers_are_one_query_by_the_index(seeded, django_assert_num_queries):
    seeded(300, 0 + 20)
    servers = list(Server.objects.values_list("pk", flat=True)[:100])
    with django_assert_num_queries(1):
        rows = list(servers_with_beats(Server.objects.filter(pk__in=servers), limit=5))
    assert {server.pk for server in rows} == set(servers)
    assert all(len(server.beats) == 5 and server.beats == sorted(server.beats, reverse=True) for server in rows)


def test_open_jobs_are_counted_and_ended_ones_estimated(seeded, monkeypatch):
    seeded(20, 2000)
    monkeypatch.setattr(instance, "COUNT_LIMIT", 2000)
    exact = instance.instance_figures()
    assert exact["about"] == []
    assert exact["counts"] == {"PENDING": 40, "CLAIMED": 2, "RUNNING": 18} | {
        state: exact["counts"][state] for state in ("COMPLETED", "FAILED", "CANCELLED", "EXPIRED")
    }
    assert sum(exact["counts"].values()) == 2000
    monkeypatch.setattr(instance, "COUNT_LIMIT", 30)
    rough = instance.instance_figures()
    assert set(rough["about"]) == {"COMPLETED", "FAILED", "CANCELLED"}
    for state, number in exact["counts"].items():
        assert rough["counts"][state] == pytest.approx(number, rel=0.2), state
    assert rough["counts"]["PENDING"] == 40
    assert rough["counts"]["EXPIRED"] == exact["counts"]["EXPIRED"]
