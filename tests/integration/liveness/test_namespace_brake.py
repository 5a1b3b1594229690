"""The brake of a namespace: silent servers hold only servers of their own namespace."""

import pytest

from jobs.selectors.instance import instance_figures
from jobs.services.alert_rules import find_conditions
from jobs.services.liveness_check import check_liveness
from liveness.models import Brake, Server, ServerEvent
from liveness.selectors.events import is_brake_of_cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleets(worker_of):
    """Return a function that starts a number of workers in each namespace."""

    def build(cluster="default", type="WORKER", **counts):
        made = {
            name: [worker_of(name, name=f"{name}-{n}", cluster=cluster, type=type) for n in range(count)]
            for name, count in counts.items()
        }
        hear_for_long()
        return made

    return build


def hear_for_long():
    """Let all servers send heartbeats for longer than their timeout."""
    for server in Server.objects.all():
        server.created_observed = server.heard_observed - server.timeout - 1
        server.save(update_fields=["created_observed"])


def silence(clock, *heard, seconds=46):
    clock.advance(seconds)
    for one in heard:
        one.beat()
    check_liveness()


def held():
    rows = Brake.objects.filter(released_by=None).order_by("namespace", "cluster")
    return list(rows.values_list("namespace", "cluster", "silent", "alive"))


def disconnected():
    return set(ServerEvent.objects.filter(to_state="DISCONNECTED").values_list("server_name", flat=True))


@pytest.mark.parametrize("cluster", ["default", "eu"])
@pytest.mark.parametrize("kind", ["WORKER", "INDEXER"])
@pytest.mark.parametrize("fakes", [3, 6, 20])
def test_silent_servers_of_one_namespace_hold_none_of_another(clock, fleets, cluster, kind, fakes):
    fleet = fleets(cluster, kind, default=3, evil=fakes)
    silence(clock, *fleet["default"][1:])
    assert disconnected() == {"default-0"}
    assert held() == [("evil", "", fakes, fakes)]


def test_those_of_several_namespaces_together_hold_none_of_another(clock, fleets):
    fleet = fleets(default=3, evil=6, other=6)
    silence(clock, *fleet["default"][1:])
    assert disconnected() == {"default-0"}


def test_in_a_cluster_that_several_namespaces_share_each_is_held_for_itself(clock, fleets):
    fleet, elsewhere = fleets("eu", default=4, evil=6), fleets("us", default=20, evil=30)
    living = [*elsewhere["default"], *elsewhere["evil"]]
    silence(clock, *fleet["default"][1:], *living)
    assert held() == [("evil", "eu", 6, 6)]
    assert disconnected() == {"default-0"}


def test_alive_servers_of_another_namespace_do_not_dilute_the_share(clock, fleets):
    fleet = fleets(default=3, evil=60)
    silence(clock, *fleet["evil"])
    assert (held(), disconnected()) == ([("default", "", 3, 3)], set())


def test_a_network_that_fails_for_all_is_held_in_each_namespace(clock, fleets):
    fleets(default=4, red=3, small=2)
    silence(clock)
    assert held() == [("default", "", 4, 4), ("red", "", 3, 3)]
    assert disconnected() == {"small-0", "small-1"}, "fewer than BRAKE_MINIMUM: no brake"
    events = ServerEvent.objects.filter(action="brake_engaged").order_by("pk")
    names = {("WORKER", "WORKER"), ("WORKER@red", "WORKER of namespace red")}
    assert set(events.values_list("subject_id", "subject_name")) == names


def test_a_brake_ends_for_the_namespace_whose_heartbeats_return(clock, fleets):
    fleet = fleets(default=4, red=4)
    silence(clock)
    silence(clock, *fleet["red"], seconds=1)
    assert held() == [("default", "", 4, 4)]
    assert disconnected() == set()


def test_after_its_longest_hold_each_namespace_lets_its_own_go(clock, fleets):
    fleets(default=12, red=4)
    silence(clock)
    for gone in ((0, 0), (2, 1), (3, 2)):
        silence(clock, seconds=299 if gone == (0, 0) else 10)
        assert tuple(sum(name in one for one in disconnected()) for name in ("default", "red")) == gone


def test_an_operator_releases_one_namespace_or_all(clock, fleets, operator):
    fleets(default=4, red=4, blue=4)
    silence(clock)
    assert operator("brake_release", namespace="red") == {"released": ["WORKER"]}
    assert [row[0] for row in held()] == ["blue", "default"]
    assert operator("brake_release", status=409, namespace="red")["code"] == "brake_not_engaged"
    operator("brake_release")
    assert held() == []
    silence(clock, seconds=10)
    assert len(disconnected()) == 12


def test_the_pages_and_the_alert_name_the_namespace(clock, fleets, api, staff):
    fleets("eu", default=4, red=4)
    silence(clock)
    brakes = api("viewer").get("/instance").json()["brakes"]
    assert [(row["namespace"], row["silent"]) for row in brakes] == [("default", 4), ("red", 4)]
    alerts = [found["subject"] for found in find_conditions(instance_figures()) if found["rule"] == "brake"]
    assert alerts == ["WORKER", "WORKER@red"]
    browser = staff("release_brake", checks_csrf=False)
    assert "The brake holds WORKER of namespace red." in browser.get("/admin/instance/").content.decode()
    page = browser.get("/admin/instance/brake/").content.decode()
    assert "WORKER of namespace red" in page and "type=WORKER&amp;namespace=red" in page
    browser.post("/admin/instance/brake/release/?type=WORKER&namespace=red", {"note": "n"})
    assert [row[0] for row in held()] == ["default"]


def test_the_history_of_a_cluster_has_the_brakes_of_all_namespaces(clock, fleets, of, reader):
    fleet, elsewhere = fleets("eu", default=4, red=4), fleets("us", default=20, red=20)
    silence(clock, *elsewhere["default"], *elsewhere["red"])
    assert {brake.key for brake in Brake.objects.all()} == {"WORKER/eu", "WORKER@red/eu"}
    events = ServerEvent.objects.filter(subject_type="brake")
    assert events.filter(is_brake_of_cluster("subject_id", "eu")).count() == 2
    assert not events.filter(is_brake_of_cluster("subject_id", "u")).exists()
    assert not events.filter(is_brake_of_cluster("subject_id", "e.")).exists()
    assert set(events.values_list("subject_id", "subject_name")) == {
        (brake.key, brake.words) for brake in Brake.objects.all()
    }
    for page in ("brake", "activity"):
        shown = reader.get(f"/admin/instance/{page}/?cluster=eu").content.decode()
        assert "WORKER of cluster eu of namespace red" in shown, page
    assert fleet
