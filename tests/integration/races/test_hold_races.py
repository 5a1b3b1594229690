"""Holds that begin and end under many claims and sweeps at the same time, with real commits and connections."""

import random
import time

import pytest

from jobs.models import Hold, LimitSlot, WorkerJob
from jobs.services import hold_parking, sweep
from tests.integration.races.test_limit_races import Running, is_all_done, plane, work_off
from tests.support.rounds import short_and_long

__all__ = ["plane"]
PATHS = ("shop.mail:confirm", "shop.orders:charge")


def body(chance):
    limits = {"limits": {"a": 1}} if chance.random() < 0.5 else {"limits": {"b": 1}}
    return {"action": {"type": "callable", "path": chance.choice(PATHS)}, "unmatched": "wait", **limits}


def hold_and_release(boss, seed, deadline):
    chance = random.Random(seed)
    while not is_all_done() and time.monotonic() < deadline:
        of = chance.choice([{"action": PATHS[0]}, {"limit": "a"}, {"action": "callable"}])
        held = boss.post("/holds", {"of": of}).json()["id"]
        time.sleep(chance.random() / 20)
        assert boss.call("delete", f"/holds/{held}").status_code == 204


def sweep_often(deadline):
    while not is_all_done() and time.monotonic() < deadline:
        sweep.run_sweep()
        time.sleep(0.02)


@pytest.mark.parametrize("count", short_and_long(50, 150))
def test_every_job_runs_once_the_last_hold_has_ended(plane, committed, threads, monkeypatch, count):
    monkeypatch.setattr(hold_parking, "JOBS_AT_ONCE", 20)
    boss, client = plane
    assert boss.call("put", "/limits/a", {"running": 2}).status_code == 201
    chance, deadline = random.Random(1), time.monotonic() + 60
    assert client.post("/jobs", [body(chance) for _ in range(count)]).status_code == 201
    crew = [committed(name=f"w{n}", tags=["python"]) for n in range(4)]
    calls = [threads(work_off, worker, Running(), n, deadline) for n, worker in enumerate(crew)]
    calls += [threads(hold_and_release, boss, 7, deadline), threads(sweep_often, deadline)]
    for call in calls:
        call.result(90)
    assert is_all_done(), list(WorkerJob.objects.exclude(state="COMPLETED").values("state", "parked_by"))
    assert not Hold.objects.filter(ended_at=None).exists() and LimitSlot.objects.count() == 0
