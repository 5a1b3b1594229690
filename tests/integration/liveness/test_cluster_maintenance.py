"""Maintenance of one cluster, beside that of the whole control plane; and maintenance that ends by itself."""

import pytest
from django.core.management import CommandError, call_command

from jobs.services import sweep
from jobs.services.liveness_check import check_liveness
from liveness.models import ClusterMaintenance, ServerEvent

EU = {"cluster": "eu"}


@pytest.fixture
def in_eu(worker):
    return worker(name="in-eu", cluster="eu")


@pytest.fixture
def in_us(worker):
    return worker(name="in-us", cluster="us")


def events():
    columns = ("action", "subject_id", "subject_name", "actor", "reason")
    return list(ServerEvent.objects.exclude(action="").order_by("pk").values_list(*columns))


def test_workers_of_a_cluster_in_maintenance_get_nothing_and_those_of_others_do(operator, submit, in_eu, in_us):
    operator("maintenance_enter", note="new switches", **EU)
    submit()
    refused = in_eu.call("POST", f"/servers/{in_eu.id}/claims", {"limit": 1})
    assert (refused.status_code, refused.json()["code"]) == (409, "maintenance")
    assert refused.json()["detail"] == "The cluster eu is in maintenance by operator:a operator: new switches"
    assert in_eu.beat().json()["maintenance"] is True
    assert in_us.beat().json()["maintenance"] is False
    assert len(in_us.claim()) == 1


def test_what_waits_for_the_end_of_the_maintenance_of_all_its_workers_alarms_nobody(api, operator, submit, in_eu):
    def verdict():
        return api("viewer").get("/instance").json()["verdict"]

    submit()
    check_liveness()
    operator("maintenance_enter", **EU)
    assert [(one["kind"], one["tone"]) for one in verdict()["concerns"]] == [("waits_for_maintenance", "note")]
    assert "1 job waits for the maintenance of cluster eu to end" in verdict()["text"]
    operator("maintenance_exit", **EU)
    operator("cordon", in_eu)
    assert verdict()["tone"] == "bad"
    assert "1 job waits and no worker takes work" in verdict()["text"]


def test_once_it_is_over_they_get_work_again(operator, submit, in_eu):
    operator("maintenance_enter", **EU)
    assert operator("maintenance_exit", **EU) == {"maintenance": None}
    submit()
    assert len(in_eu.claim()) == 1
    assert [event[:3] for event in events()] == [
        ("maintenance_enter", "eu", "cluster eu"), ("maintenance_exit", "eu", "cluster eu"),
    ]  # fmt: skip


def test_the_end_of_one_leaves_the_other_in_force(operator, in_eu):
    operator("maintenance_enter")
    operator("maintenance_enter", **EU)
    operator("maintenance_exit", **EU)
    assert in_eu.beat().json()["maintenance"] is True
    operator("maintenance_enter", **EU)
    operator("maintenance_exit")
    assert in_eu.beat().json()["maintenance"] is True


def test_what_is_in_force_already_or_not_at_all_is_refused(operator, in_eu):
    assert operator("maintenance_exit", status=409, **EU)["detail"] == "The cluster eu is not in maintenance."
    operator("maintenance_enter", **EU)
    assert operator("maintenance_enter", status=409, **EU)["code"] == "already_in_maintenance"
    assert len(events()) == 1


def test_a_cluster_of_which_no_server_ever_was_is_unknown(operator, in_eu):
    assert operator("maintenance_enter", status=404, cluster="ue")["code"] == "cluster_unknown"
    assert not ClusterMaintenance.objects.exists()


def test_the_instance_shows_maintenance_with_its_scope_and_its_end(operator, api, in_eu, clock):
    operator("maintenance_enter", note="disks", duration_seconds=3600, **EU)
    instance = api("viewer").get("/instance").json()
    assert instance["maintenance"] is None
    [shown] = instance["clusters_in_maintenance"]
    assert (shown["cluster"], shown["by"], shown["note"]) == ("eu", "operator:a operator", "disks")
    assert shown["until"] > shown["since"]
    operator("maintenance_enter", duration_seconds=60)
    assert api("viewer").get("/instance").json()["maintenance"]["until"] is not None


@pytest.mark.parametrize("scope", [{}, EU])
def test_after_its_time_the_next_check_ends_it(operator, submit, in_eu, clock, scope):
    operator("maintenance_enter", duration_seconds=60, **scope)
    clock.advance(59)
    in_eu.beat()
    check_liveness()
    assert in_eu.beat().json()["maintenance"] is True
    clock.advance(1)
    in_eu.beat()
    check_liveness()
    assert in_eu.beat().json()["maintenance"] is False
    submit()
    assert len(in_eu.claim()) == 1
    name = "cluster eu" if scope else ""
    assert events()[1:] == [("maintenance_exit", scope.get("cluster", ""), name, "liveness", "it expired")]
    check_liveness()
    assert len(events()) == 2


def test_no_job_fails_for_want_of_a_worker_that_its_cluster_is_to_bring_back(operator, submit, worker, clock):
    gone = worker(name="gone", cluster="eu", tags=["gpu", "script"])
    worker(name="stays", cluster="us")
    operator("maintenance_enter", **EU)
    gone.beat(state="TERMINATED_GRACEFULLY")
    submit(tags=["gpu"])
    clock.advance(100)
    assert sweep.run_sweep()["unmatched"] == {}
    operator("maintenance_exit", **EU)
    clock.advance(31)
    assert sweep.run_sweep()["unmatched"] == {"FAILED": 1}


@pytest.mark.parametrize("scope", [{}, EU], ids=["all", "cluster"])
@pytest.mark.parametrize("seconds", [60, None], ids=["by itself", "by hand"])
def test_workers_that_come_back_after_maintenance_have_as_long_as_at_a_start(
    operator, submit, worker, clock, scope, seconds
):
    gone = worker(name="gone", cluster="eu", tags=["gpu", "script"])
    operator("maintenance_enter", **scope, **({"duration_seconds": seconds} if seconds else {}))
    gone.beat(state="TERMINATED_GRACEFULLY")
    submit(tags=["gpu"])
    clock.advance(100)
    if seconds is None:
        operator("maintenance_exit", **scope)
    check_liveness()
    clock.advance(25)
    assert sweep.run_sweep()["unmatched"] == {}
    clock.advance(6)
    assert sweep.run_sweep()["unmatched"] == {"FAILED": 1}


def test_a_job_that_others_gave_back_waits_for_a_cluster_in_maintenance(operator, submit, in_eu, in_us, clock):
    operator("maintenance_enter", **EU)
    in_eu.beat(state="TERMINATED_GRACEFULLY")
    submit()
    (attempt,) = in_us.claim()
    in_us.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "not_allowed"})
    clock.advance(100)
    assert sweep.run_sweep()["unmatched"] == {}
    operator("maintenance_exit", **EU)
    clock.advance(31)
    assert sweep.run_sweep()["unmatched"] == {"FAILED": 1}


def test_the_placement_of_a_job_names_the_cluster(operator, submit, api, in_eu):
    operator("maintenance_enter", **EU)
    job = submit()
    [ruled_out] = api("viewer").get(f"/jobs/{job['id']}/placement").json()["ruled_out"]
    assert (ruled_out["filter"], ruled_out["detail"]) == ("maintenance", "its cluster eu is in maintenance")


def test_the_command_takes_a_cluster_and_a_time(in_eu, capsys):
    call_command("maintenance", "enter", "--cluster", "eu", "--for", "2h", "--note", "x")
    row = ClusterMaintenance.objects.get()
    assert (row.until - row.since).total_seconds() == pytest.approx(7200, abs=1)
    call_command("maintenance", "exit", "--cluster", "eu")
    assert not ClusterMaintenance.objects.exists()
    with pytest.raises(CommandError, match="No server of the cluster ue"):
        call_command("maintenance", "enter", "--cluster", "ue")
