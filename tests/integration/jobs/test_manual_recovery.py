"""Recovery by hand over the API and on the command line. It always prints what it does."""

import pytest
from django.core.management import CommandError, call_command

from jobs.models import Attempt
from liveness.models import ServerEvent


@pytest.fixture
def silent(worker, submit, clock):
    """Return a claimed and a running attempt, silent for 100 s, of a worker that sends heartbeats."""
    submit(), submit()
    one = worker()
    running, claimed = one.hold(), one.hold(running=False)
    clock.advance(100)
    one.beat()
    return {"CLAIMED": claimed["id"], "RUNNING": running["id"]}


def state(attempt):
    return Attempt.objects.get(pk=attempt).state


def test_the_stale_are_listed_with_what_helps_to_find_them(api, silent):
    viewer = api("viewer")
    assert viewer.get("/recovery/stale").json()["items"] == []
    thresholds = "claimed_older_than_seconds=99&running_older_than_seconds=99"
    items = viewer.get(f"/recovery/stale?{thresholds}").json()["items"]
    assert {item["state"]: item["attempt"] for item in items} == silent
    assert all(item["silence_seconds"] > 99 and item["server"]["name"] == "worker-1" for item in items)


@pytest.mark.parametrize(
    ("path", "kind", "end"),
    [("requeue-stale-claimed", "CLAIMED", "REQUEUED"), ("fail-stale-running", "RUNNING", "FAILED")],
)
def test_an_operator_recovers_the_stale_of_one_kind(api, silent, path, kind, end):
    operator = api("operator")
    assert operator.post(f"/recovery/{path}", {"older_than_seconds": 110}).json() == {"count": 0}
    assert operator.post(f"/recovery/{path}", {"older_than_seconds": 90}).json() == {"count": 1}
    assert state(silent[kind]) == end
    assert Attempt.objects.get(pk=silent[kind]).ended_by == "operator:a operator"
    (other,) = set(silent) - {kind}
    assert state(silent[other]) == other


@pytest.mark.parametrize("path", ["requeue-stale-claimed", "fail-stale-running"])
@pytest.mark.parametrize("role", ["worker", "client", "viewer"])
def test_only_an_operator_may(api, role, path):
    assert api(role).post(f"/recovery/{path}", {"older_than_seconds": 1}).status_code == 403


@pytest.mark.parametrize("body", [{}, {"older_than_seconds": "5"}, {"older_than_seconds": -1}, {"other": 1}])
def test_a_threshold_that_is_none_is_a_400(api, silent, body):
    answer = api("operator").post("/recovery/fail-stale-running", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert state(silent["RUNNING"]) == "RUNNING"


def test_the_commands_count_show_and_do_it(silent, capsys):
    call_command("requeue_stale_claimed", "--older-than", "90s", "--dry-run")
    assert state(silent["CLAIMED"]) == "CLAIMED"
    call_command("requeue_stale_claimed", "--older-than", "90s")
    call_command("fail_stale_running", "--older-than", "1m")
    call_command("fail_stale_running", "--older-than", "1m")
    assert capsys.readouterr().out.split("\n")[:4] == ["stale: 1", "done: 1", "done: 1", "done: 0"]
    assert (state(silent["CLAIMED"]), state(silent["RUNNING"])) == ("REQUEUED", "FAILED")


@pytest.mark.parametrize("threshold", ["soon", "none"])
def test_a_command_explains_what_is_wrong_with_its_threshold(db, threshold):
    with pytest.raises(CommandError, match="--older-than"):
        call_command("fail_stale_running", "--older-than", threshold)


@pytest.mark.parametrize(
    ("command", "key", "kind"),
    [
        ("requeue_stale_claimed", "CLAIMED_STALE_AFTER", "CLAIMED"),
        ("fail_stale_running", "RUNNING_STALE_AFTER", "RUNNING"),
    ],
)
def test_a_command_without_a_threshold_goes_by_the_setting(silent, settings, command, key, kind):
    settings.JOBS = {key: "110s"}
    call_command(command)
    assert state(silent[kind]) == kind
    settings.JOBS = {key: "90s"}
    call_command(command)
    assert state(silent[kind]) in ("REQUEUED", "FAILED")


def test_who_recovers_by_hand_and_why_is_kept(api, silent):
    api("operator").post("/recovery/requeue-stale-claimed", {"older_than_seconds": 90, "note": "the rack burns"})
    call_command("fail_stale_running", "--older-than", "90s", "--note", "it does")
    events = ServerEvent.objects.filter(subject_type="attempts").order_by("pk")
    recorded = [(event.action, event.subject_name, event.actor, event.note) for event in events]
    which = "attempts silent for more than 90 s"
    assert recorded[0] == ("requeue_stale_claimed", f"claimed {which}", "operator:a operator", "the rack burns")
    assert (*recorded[1][:2], recorded[1][3]) == ("fail_stale_running", f"running {which}", "it does")
