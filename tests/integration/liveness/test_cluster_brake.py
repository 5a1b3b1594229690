"""The brake of one cluster: its network has failed, but the rest of the fleet is well."""

import pytest

from jobs.selectors.instance import instance_figures
from jobs.services.alert_rules import find_conditions
from jobs.services.liveness_check import check_liveness
from liveness.models import Brake, Server, ServerEvent
from tests.integration.liveness.test_brake import disconnected


@pytest.fixture
def fleets(worker):
    """Return a function that starts a number of workers in each cluster."""

    def build(**counts):
        return {
            name: [worker(name=f"{name}-{number}", cluster=name, old=True) for number in range(count)]
            for name, count in counts.items()
        }

    return build


def silence(clock, *heard, seconds=46):
    clock.advance(seconds)
    for one in heard:
        one.beat()
    check_liveness()


def held():
    return list(Brake.objects.filter(released_by=None).order_by("cluster").values_list("type", "cluster", "silent"))


def events():
    some = ServerEvent.objects.filter(action__startswith="brake").order_by("pk")
    return list(some.values_list("action", "subject_id", "subject_name"))


def test_a_cluster_that_falls_silent_is_held_though_the_fleet_is_well(clock, fleets):
    workers = fleets(eu=4, us=12)
    silence(clock, *workers["us"])
    assert held() == [("WORKER", "eu", 4)]
    assert disconnected() == 0
    assert events() == [("brake_engaged", "WORKER/eu", "WORKER of cluster eu")]


def test_it_holds_nobody_of_another_cluster(clock, fleets):
    workers = fleets(eu=4, us=12)
    silence(clock, *workers["us"][1:])
    assert held() == [("WORKER", "eu", 4)]
    assert [*Server.objects.filter(state="DISCONNECTED").values_list("name", flat=True)] == ["us-0"]


def test_where_the_type_is_held_everywhere_its_clusters_have_none_of_their_own(clock, fleets):
    fleets(eu=4, us=4)
    silence(clock)
    assert held() == [("WORKER", "", 8)]


def test_the_one_cluster_of_a_type_has_none_of_its_own(clock, fleets):
    workers = fleets(eu=8)
    silence(clock, *workers["eu"][3:])
    assert held() == [("WORKER", "", 3)]


def test_what_is_left_of_a_brake_on_all_is_held_since_that_began(clock, fleets):
    workers = fleets(eu=4, us=12)
    silence(clock)
    began = Brake.objects.get().engaged_observed
    for _ in range(2):
        clock.advance(10)
        for one in workers["us"]:
            one.beat()
        check_liveness()
    assert held() == [("WORKER", "eu", 4)]
    assert Brake.objects.get().engaged_observed == began
    assert disconnected() == 0


def test_after_its_longest_hold_it_lets_one_go_at_each_check(clock, fleets):
    workers = fleets(eu=4, us=12)
    silence(clock, *workers["us"])
    for seconds, gone in ((299, 0), (10, 1), (10, 2)):
        silence(clock, *workers["us"], seconds=seconds)
        assert disconnected() == gone


def test_an_operator_releases_that_of_one_cluster_alone(clock, fleets, operator):
    workers = fleets(eu=4, ap=4, us=24)
    silence(clock, *workers["us"])
    assert [row[1] for row in held()] == ["ap", "eu"]
    assert operator("brake_release", cluster="eu") == {"released": ["WORKER"]}
    silence(clock, *workers["us"], seconds=10)
    assert set(Server.objects.filter(state="DISCONNECTED").values_list("cluster", flat=True)) == {"eu"}
    assert events()[-1] == ("brake_released", "WORKER/eu", "WORKER of cluster eu")
    assert operator("brake_release", status=409, cluster="us")["code"] == "brake_not_engaged"


def test_a_release_of_all_releases_those_of_clusters_too(clock, fleets, operator):
    workers = fleets(eu=4, us=12)
    silence(clock, *workers["us"])
    operator("brake_release")
    silence(clock, *workers["us"], seconds=10)
    assert disconnected() == 4


def test_the_instance_and_the_alert_name_the_cluster(clock, fleets, api):

    workers = fleets(eu=4, us=12)
    silence(clock, *workers["us"])
    [shown] = api("viewer").get("/instance").json()["brakes"]
    assert (shown["type"], shown["cluster"], shown["silent"], shown["alive"]) == ("WORKER", "eu", 4, 4)
    [alert] = [found for found in find_conditions(instance_figures()) if found["rule"] == "brake"]
    assert alert["subject"] == "WORKER/eu"
    assert alert["summary"] == "The brake holds WORKER of cluster eu: 4 of 4 silent at the same time"


def test_a_fleet_that_is_often_silent_does_not_hold_dead_servers_of_a_cluster(clock, fleets):
    workers = fleets(eu=4, us=12)
    silence(clock, *workers["us"])
    for _ in range(4):
        silence(clock, seconds=46)
        assert held()[0][1] == ""
        silence(clock, *workers["us"], seconds=40)
        assert [row[1] for row in held()] == ["eu"]
    assert disconnected() > 0
    assert set(Server.objects.filter(state="DISCONNECTED").values_list("cluster", flat=True)) == {"eu"}


def test_a_released_cluster_stays_released_after_a_brake_on_the_whole_type(clock, fleets, operator):
    workers = fleets(eu=4, us=12)
    silence(clock, *workers["us"])
    operator("brake_release", cluster="eu")
    silence(clock, seconds=46)
    assert disconnected() == 0 and ("WORKER", "", 16) in held()
    silence(clock, *workers["us"], seconds=10)
    assert disconnected() == 4 and held() == []
