"""A cluster as a scope of `GET /instance`, its history, the overview, trends and the activity.

Jobs count for a cluster by the server that has them, and while they wait by the workers that could take them.
"""

import pytest

from jobs.models import WorkerJob
from jobs.services.history import count_history
from jobs.services.liveness_check import check_liveness
from liveness.models import ServerEvent
from tests.integration.console.test_page_actions import words

PAGES = "/admin/instance/"


@pytest.fixture
def fleets(worker):
    """Start a worker in each of two clusters. Only one has the tag gpu."""
    eu = worker(name="in-eu", cluster="eu", tags=["gpu", "script", "python"])
    return eu, worker(name="in-us", cluster="us", tags=["script", "python"])


@pytest.fixture
def instance(api):
    viewer = api("viewer")

    def read(cluster="", status=200):
        answer = viewer.get(f"/instance{f'?cluster={cluster}' if cluster else ''}")
        assert answer.status_code == status, answer.json()
        return answer.json()

    return read


def test_it_has_the_servers_of_that_cluster_alone(fleets, instance):
    assert {row["cluster"] for row in instance("eu")["servers"]} == {"eu"}
    assert "1 of 1 server alive." in instance("eu")["verdict"]["text"]
    assert {row["cluster"] for row in instance()["servers"]} >= {"eu", "us"}


def test_what_waits_counts_where_a_worker_could_take_it_and_what_runs_where_it_runs(fleets, instance, submit):
    eu, us = fleets
    for tags in (["gpu"], [], ["quantum"]):
        submit(tags=tags)
    assert instance("eu")["jobs"] == {"PENDING": 2, "CLAIMED": 0, "RUNNING": 0}
    assert instance("us")["jobs"] == {"PENDING": 1, "CLAIMED": 0, "RUNNING": 0}
    us.hold()
    eu.hold(running=False)
    assert instance("eu")["jobs"] == {"PENDING": 0, "CLAIMED": 1, "RUNNING": 0}
    assert instance("us")["jobs"] == {"PENDING": 0, "CLAIMED": 0, "RUNNING": 1}
    assert instance("us")["oldest_pending_seconds"] is None


def test_a_loss_is_of_its_cluster(fleets, instance, clock, submit):
    eu, us = fleets
    submit(tags=["gpu"])
    eu.hold()
    clock.advance(46)
    us.beat()
    check_liveness()
    assert [row["server"]["name"] for row in instance("eu")["attention"]] == ["in-eu"]
    assert instance("us")["attention"] == []
    assert instance("us")["verdict"]["tone"] == "well"
    assert instance("us")["verdict"]["last_incident"] is None


def test_maintenance_of_another_cluster_is_not_shown(fleets, instance, operator):
    operator("maintenance_enter", cluster="us")
    assert instance("eu")["clusters_in_maintenance"] == []
    assert [row["cluster"] for row in instance("us")["clusters_in_maintenance"]] == ["us"]
    operator("maintenance_enter")
    assert instance("eu")["maintenance"] is not None


@pytest.mark.parametrize("address", ["/instance", "/instance/history"])
def test_a_cluster_that_never_was_is_a_404(fleets, api, address):
    answer = api("viewer").get(f"{address}?cluster=ue")
    assert (answer.status_code, answer.json()["code"]) == (404, "cluster_unknown")


def ended(api, cluster=""):
    """Return the numbers of completed, failed, waiting and running jobs of the last hour, and the slots."""
    points = (
        api("viewer").get(f"/instance/history?window=1h{f'&cluster={cluster}' if cluster else ''}").json()["points"]
    )
    last = [point for point in points if point["waiting"] is not None][-1]
    sums = [sum(point["ended"][outcome] for point in points) for outcome in ("completed", "failed")]
    return [*sums, last["waiting"], last["running"], last["slots_used"], last["slots_free"]]


def test_the_history_of_a_cluster_counts_what_its_servers_ended_and_have(fleets, api, submit):
    eu, us = fleets
    for _ in range(3):
        submit(max_retries=0)
    us.complete(us.hold())
    held = us.hold()
    us.report({"attempt": held["id"], "event": "FAILED", "error": {"code": "X", "message": "x"}})
    assert WorkerJob.objects.filter(state="PENDING").count() >= 1
    eu.hold()
    submit(tags=["gpu"])
    count_history()
    waiting = WorkerJob.objects.filter(state="PENDING").count()
    failed = WorkerJob.objects.filter(state="FAILED").count()
    assert ended(api) == [1, failed, waiting, 1, 1, 19]
    assert ended(api, "us") == [1, failed, waiting - 1, 0, 0, 10]
    assert ended(api, "eu") == [0, 0, waiting, 1, 1, 9]
    count_history()
    assert ended(api, "eu") == [0, 0, waiting, 1, 1, 9]


def test_a_server_that_is_lost_is_a_mark_of_its_cluster(fleets, api, clock):
    _, us = fleets
    clock.advance(46)
    us.beat()
    check_liveness()
    count_history()

    def lost(cluster):
        points = api("viewer").get(f"/instance/history?cluster={cluster}").json()["points"]
        return sum(point["servers_lost"] for point in points)

    assert (lost("eu"), lost("us")) == (1, 0)


def test_the_first_page_is_of_one_cluster_where_one_is_chosen(fleets, reader, submit):
    submit(tags=["gpu"])
    whole = reader.get(PAGES).content.decode()
    assert 'name="cluster"' in whole and "in-eu" in whole and "in-us" in whole
    page = words(reader.get(f"{PAGES}?cluster=eu"))
    assert "Cluster eu" in page and "in-eu" in page and "in-us" not in page
    assert f"{PAGES}activity/?cluster=eu" in reader.get(f"{PAGES}?cluster=eu").content.decode()


def test_of_one_cluster_nothing_is_asked_for(worker, reader):
    worker()
    assert 'name="cluster"' not in reader.get(PAGES).content.decode()


@pytest.mark.parametrize("page", ["", "trends/"])
def test_a_page_of_an_unknown_cluster_explains_that(fleets, reader, page):
    answer = reader.get(f"{PAGES}{page}?cluster=ue")
    assert answer.status_code == 404 and "No server of this cluster has ever registered" in words(answer)


def test_trends_are_by_cluster_where_there_are_several_and_of_one_where_it_is_chosen(fleets, reader, submit):
    for one in fleets:
        submit()
        one.complete(one.hold())
    count_history()
    page = reader.get(f"{PAGES}trends/").content.decode()
    assert "By cluster" in page and "cluster=eu&amp;window=1h" in page
    assert "Trends of cluster eu" in words(reader.get(f"{PAGES}trends/?cluster=eu"))


def test_the_activity_of_a_cluster_has_what_happened_there_and_was_done_to_it(fleets, reader, operator, submit, clock):
    eu, us = fleets
    operator("cordon", us, note="why us")
    operator("cordon", eu, note="why eu")
    operator("maintenance_enter", cluster="us", note="switches of us")
    operator("maintenance_enter", cluster="eu", note="switches of eu")
    ServerEvent.objects.create(
        subject_type="brake", subject_id="WORKER/eu", subject_name="WORKER of cluster eu", action="brake_engaged",
        actor="liveness", reason="brake of eu",
    )  # fmt: skip
    page = words(reader.get(f"{PAGES}activity/?cluster=eu"))
    assert "why eu" in page and "switches of eu" in page and "brake of eu" in page
    assert "why us" not in page and "switches of us" not in page
