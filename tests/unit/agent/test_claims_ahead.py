"""Claims ahead: tasks of milliseconds do not wait for calls, and nothing of them is lost or waits behind a slow one."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane.agent.api.journal import read_journal
from controlplane.agent.claims_ahead import PATIENCE, ClaimsAhead
from tests.support.standin import Agent, ControlPlane, Refuse, eventually

WORK = """
import os, time
def nothing(_):
    return 1
def note(path):
    with open(path, "a") as file: file.write("x")
def nap(seconds):
    time.sleep(seconds)
def hang(path):
    with open(path, "a") as file: file.write("x")
    time.sleep(1000)
"""


@pytest.fixture
def pooled(agent: Callable[..., Agent], tmp_path: Path) -> Callable[..., Agent]:
    (tmp_path / "work.py").write_text(WORK)
    return lambda *options: agent("--allow", "callable:work", "--concurrency", "1", *options)


def submit(plane: ControlPlane, function: str, payload: Any = None) -> str:
    return plane.submit({"type": "callable", "path": f"work:{function}"}, payload)


def warm_up(plane: ControlPlane) -> None:
    """Run short tasks until the agent claims ahead."""
    while not is_ahead(plane):
        attempt = submit(plane, "nothing")
        eventually(lambda attempt=attempt: plane.final(attempt))


def is_ahead(plane: ControlPlane) -> bool:
    return any(body.get("ahead") for call, body in list(plane.calls) if call == "claims")


def ends(plane: ControlPlane) -> Counter[str]:
    """Return how often each attempt was reported as ended."""
    return Counter(one["attempt"] for one in list(plane.reports) if one["event"] in ("COMPLETED", "FAILED", "RELEASED"))


def test_short_tasks_are_claimed_ahead_and_share_calls(plane, pooled):
    pooled()
    warm_up(plane)
    calls = plane.count("reports")
    attempts = [submit(plane, "nothing") for _ in range(200)]
    eventually(lambda: all(map(plane.final, attempts)))
    assert plane.count("reports") - calls < 250  # of 400 without company
    assert set(ends(plane).values()) == {1}
    for attempt in attempts:  # while the machine stands still, the tasks look slow and those behind them go back
        assert plane.events(attempt) in (["STARTED", "COMPLETED"], ["STARTED", "RELEASED"])
    assert Counter(plane.final(attempt)["event"] for attempt in attempts)["COMPLETED"] > 100


def test_with_prefetch_0_nothing_is_claimed_ahead(plane, pooled):
    pooled("--prefetch", "0")
    for _ in range(30):
        attempt = submit(plane, "nothing")
        eventually(lambda attempt=attempt: plane.final(attempt))
    assert not is_ahead(plane)


def test_code_begins_only_after_its_start_was_accepted(plane, pooled, tmp_path):
    pooled()
    warm_up(plane)
    refused: list[str] = []

    def refuse(body: dict[str, Any]) -> dict[str, Any] | None:
        if not any(one["event"] == "STARTED" for one in body["reports"]):
            return None
        refused.extend(one["attempt"] for one in body["reports"] if one["event"] == "STARTED")
        result = {"accepted": False, "replayed": False, "state": "RESUBMITTED", "code": "attempt_superseded"}
        return {"results": [{"attempt": one["attempt"], **result} for one in body["reports"]]}

    plane.script["reports"] = refuse
    attempts = [submit(plane, "note", str(tmp_path / "begun")) for _ in range(20)]
    eventually(lambda: set(attempts) <= set(refused))
    del plane.script["reports"]
    last = submit(plane, "nothing")
    assert eventually(lambda: plane.final(last))["event"] == "COMPLETED"
    assert not (tmp_path / "begun").exists()


def test_nothing_waits_long_behind_a_slow_task(plane, pooled):
    pooled()
    warm_up(plane)
    slow = submit(plane, "nap", 5)
    others = [submit(plane, "nothing") for _ in range(10)]
    released = eventually(lambda: [one for one in others if (end := plane.final(one)) and end["event"] == "RELEASED"])
    assert not plane.final(slow), "it still runs"
    assert plane.final(released[0])["reason"] == "behind a slow task"
    assert plane.final(released[0])["begun"] is False
    eventually(lambda: plane.final(slow))


@pytest.mark.parametrize("instruction", ["SIGTERM", "cordoned"])
def test_claims_ahead_go_back_at_once(plane, pooled, tmp_path, instruction):
    worker = pooled()
    warm_up(plane)
    submit(plane, "hang", str(tmp_path / "begun"))
    others = [submit(plane, "nothing") for _ in range(10)]
    eventually((tmp_path / "begun").exists)
    if instruction == "SIGTERM":
        worker.process.send_signal(signal.SIGTERM)
    else:
        plane.heartbeat["cordoned"] = True
    claimed = {item["id"] for items in plane.claims.values() for item in items}
    eventually(lambda: all(plane.final(one) for one in others if one in claimed))
    assert set(ends(plane).values()) <= {1}


def test_an_agent_that_is_killed_loses_no_finished_task_and_gives_the_rest_back(plane, pooled, tmp_path):
    worker = pooled()
    warm_up(plane)

    def refuse_after_the_start(_: dict[str, Any]) -> None:
        if "STARTED" in plane.events(hanging):
            raise Refuse(503, "busy")

    with plane.lock:
        done = [submit(plane, "note", str(tmp_path / "done")) for _ in range(5)]
        hanging = submit(plane, "hang", str(tmp_path / "hangs"))
        rest = [submit(plane, "note", str(tmp_path / "rest")) for _ in range(20)]
        plane.script["reports"] = refuse_after_the_start
    eventually((tmp_path / "hangs").exists)
    worker.process.kill()
    worker.process.wait()
    sent = [report for call, body in plane.calls if call == "reports" for report in body["reports"]]
    begun = {report["attempt"] for report in sent if report["event"] == "STARTED"}
    plane.pending.clear()
    [journal] = Path(tmp_path, "state").rglob("*.journal")
    kept = read_journal(journal)
    assert kept is not None
    told = {one["attempt"]: one["event"] for one in kept["reports"] if one["event"] in ("COMPLETED", "RELEASED")}
    for attempt in done:
        assert "COMPLETED" in (told.get(attempt), (plane.final(attempt) or {}).get("event"))
    assert hanging not in told and not plane.final(hanging)
    for attempt in rest:
        if attempt in begun:  # the agent may have died before it read the last claims
            assert "RELEASED" in (told.get(attempt), (plane.final(attempt) or {}).get("event"))
    assert not (tmp_path / "rest").exists()
    assert (tmp_path / "done").read_text() == "xxxxx"
    assert "of " + plane.registrations[0] not in journal.read_text(), "the token of the server"

    plane.script.clear()
    pooled("--concurrency", "4")
    eventually(lambda: not journal.exists())
    eventually(lambda: all(map(plane.final, done)))
    assert plane.final(hanging) is None
    assert {plane.final(one)["event"] for one in rest if one in begun} <= {"RELEASED"}
    assert all(one["begun"] is False for one in plane.reports if one["event"] == "RELEASED")
    eventually(lambda: len(plane.registrations) == 2)


def test_an_agent_with_slow_tasks_claims_nothing_ahead_however_many_slots_it_has():
    for slots in (1, 10, 100, 1000):
        ahead = ClaimsAhead(slots, most=100)
        ahead.record_end(time.monotonic())
        assert ahead.wanted(slots) == 100
        ahead.record_slow_task()
        assert ahead.wanted(slots) == 0
        for _ in range(5):
            ahead.record_end(time.monotonic() - 0.3)
            assert ahead.wanted(slots) == 0
        for _ in range(20):
            ahead.record_end(time.monotonic())
        assert ahead.wanted(slots) > 0, "short tasks have ended again"


def test_only_as_many_jobs_are_claimed_ahead_as_the_slots_finish_in_200_ms():
    ahead = ClaimsAhead(slots=2, most=50)
    assert ahead.wanted(2) == 0, "nothing is known yet"
    for _ in range(100):
        ahead.record_end(time.monotonic() - 0.010)
    assert 30 <= ahead.wanted(2) <= 40
    assert ahead.wanted(25) == 0, "enough are held"
    for _ in range(100):
        ahead.record_end(time.monotonic() - 0.4)
    assert ahead.wanted(2) == 0
    begun = time.monotonic() - PATIENCE
    assert ahead.count_kept([begun, begun]) == 0 and ahead.count_kept([begun, time.monotonic()]) == 2


def test_slots_with_slow_tasks_are_not_counted_on():
    ahead = ClaimsAhead(slots=16, most=100)
    ahead.record_end(time.monotonic() - 0.050)
    slow = [time.monotonic() - PATIENCE] * 15
    assert ahead.wanted(16) > 50
    assert 1 <= ahead.wanted(16, [*slow, time.monotonic()]) <= 4
    assert 15 <= ahead.count_kept([*slow, time.monotonic()]) <= 20, "as many as one slot finishes in a second"


def test_jobs_go_back_once_tasks_turn_out_to_be_longer_than_those_before():
    ahead = ClaimsAhead(slots=1, most=100)
    ahead.record_end(time.monotonic() - 0.002)
    assert ahead.count_kept([time.monotonic()]) > 98
    ahead.record_end(time.monotonic() - 0.4)
    assert ahead.count_kept([time.monotonic()]) < 15
