"""Code never runs in two places: the next attempt of a moved job begins only when the previous one has stopped."""

import uuid
from contextlib import contextmanager

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from controlplane.agent.api.registration import ServerConfig
from controlplane.agent.fence import Fence
from controlplane.core.model_fields import ObservedNow
from jobs.models import Attempt, TakenAttempt, WorkerJob
from jobs.services import sweep
from jobs.services.liveness_check import check_liveness
from liveness.models import Brake, Server, ServerEvent
from liveness.services import detection, operations
from tests.support.clock import Clock
from tests.support.executions import step

AFTER, AT_ONCE, NEVER = "AFTER_TERMINATION_GRACE_PERIOD", "IMMEDIATELY", "NEVER"
RUNNING_STALE, CANCEL, TIMEOUT, GRACE = 300, 60, 45, 100
ANN = "operator:ann"


def pass_time(clock, seconds, *workers, **fields):
    """Let time pass with heartbeats of these servers and a check every ten seconds."""
    while seconds > 0:
        clock.advance(min(10, seconds))
        seconds -= 10
        for one in workers:
            one.beat(**fields)
        check_liveness()


# Item 1: code is stale only if its server sent heartbeats since


@pytest.mark.parametrize("why", ["the brake", "a longer timeout", "switched off"])
def test_code_on_a_silent_server_is_never_stale_whatever_keeps_it_alive(worker, submit, clock, settings, why):
    settings.LIVENESS = {"ENABLED": why != "switched off", "BRAKE_MAX_HOLD": 10_000}
    job = submit()
    config = {"timeout_seconds": 5000} if why == "a longer timeout" else {}
    one = worker(name="silent", old=True, config=config)
    one.hold()
    others = [worker(name=f"other-{n}", old=True) for n in range(5)]
    silent = others[3:] if why == "the brake" else []
    pass_time(clock, 800, *[other for other in others if other not in silent])
    assert sweep.run_sweep()["overdue"] == {}
    assert Server.objects.get(pk=one.id).state == "RUNNING"
    assert Brake.objects.exists() == (why == "the brake")
    assert submit.client.get(f"/jobs/{job['id']}").json()["state"] == "RUNNING"


def test_code_is_stale_only_if_its_server_sent_heartbeats_since(worker, submit, clock):
    submit()
    one = worker()
    one.hold()
    pass_time(clock, RUNNING_STALE, one)
    assert sweep.run_sweep()["overdue"] == {}
    clock.advance(5)
    assert sweep.run_sweep()["overdue"] == {}
    one.beat()
    assert sweep.run_sweep()["overdue"] == {"RESUBMITTED": 1}


# Attempts that were taken from an alive server


def moved_by_an_operator(job, api, clock):
    assert api("operator").post(f"/jobs/{job['id']}/resubmit", {}).status_code == 200


def moved_as_stale(job, api, clock):
    Attempt.objects.update(alive_observed=-1000)
    assert sweep.run_sweep()["overdue"] == {"RESUBMITTED": 1}


def timed_out(job, api, clock):
    WorkerJob.objects.update(timeout_seconds=0.001, max_retries=1, retry_on=["STEP_TIMEOUT"])
    Attempt.objects.update(started_observed=-1000)
    assert sweep.run_sweep()["overdue"] == {"FAILED": 1}


def failed_and_submitted_again(job, api, clock):
    operator = api("operator")
    assert operator.post(f"/jobs/{job['id']}/fail", {}).status_code == 200
    assert operator.post(f"/jobs/{job['id']}/resubmit", {}).status_code == 201


MOVES = [moved_by_an_operator, moved_as_stale, timed_out, failed_and_submitted_again]


@pytest.fixture
def taken(worker, submit, api, clock):
    """Take a running job from its worker. Return this worker, another one and the attempt: `one, heir, attempt = …`"""

    def taken(move=moved_by_an_operator, **fields):
        job = submit()
        one = worker(name="one", **fields)
        attempt = one.hold()
        one.beat()
        move(job, api, clock)
        clock.advance(0.001)
        return one, worker(name="heir"), attempt["id"]

    return taken


@pytest.mark.parametrize("move", MOVES)
def test_the_next_attempt_waits_until_the_old_worker_confirms_the_stop(taken, move):
    one, heir, attempt = taken(move)
    assert heir.claim() == []
    assert one.beat(state="RUNNING", stopped=[]).json()["lost"] == [attempt]
    assert heir.claim() == []
    assert one.beat(state="RUNNING", stopped=[]).json()["lost"] == [attempt]
    assert heir.claim() == []
    assert one.beat(state="RUNNING", stopped=[attempt]).json()["lost"] == []
    assert len(heir.claim()) == 1
    assert not TakenAttempt.objects.exists()


def test_a_worker_without_a_stopped_list_has_stopped_what_it_no_longer_lists(taken):
    one, heir, attempt = taken()
    assert one.beat().json()["lost"] == [attempt]
    assert one.beat(running=[{"attempt": attempt}]).json()["lost"] == [attempt]
    assert heir.claim() == []
    assert one.beat().json()["lost"] == []
    assert len(heir.claim()) == 1


def test_every_job_that_repeats_a_taken_one_waits_for_it(worker, submit, api):
    job, one, operator = submit(), worker(name="one"), api("operator")
    one.hold()
    assert operator.post(f"/jobs/{job['id']}/fail", {}).status_code == 200
    first, second = (operator.post(f"/jobs/{job['id']}/resubmit", {"force": True}).json()["id"] for _ in range(2))
    assert operator.post(f"/jobs/{first}/cancel", {}).status_code == 200
    third = operator.post(f"/jobs/{first}/resubmit", {}).json()["id"]
    heir = worker(name="heir")
    assert heir.claim() == []
    one.obey()
    assert {attempt["job"]["id"] for attempt in heir.claim()} == {second, third}


@pytest.mark.parametrize("again", ["restart", "rerun"])
@pytest.mark.parametrize("is_of_child", [False, True])
def test_a_step_of_a_rerun_waits_for_taken_attempts_of_the_first_run(worker, begin, api, again, is_of_child):
    child = {"type": "execution", "name": "inner", "steps": [step("a")]}
    run, one = begin(step("outer", action=child) if is_of_child else step("a")), worker(name="one")
    attempt = one.hold()
    assert api("operator").post(f"/jobs/{attempt['job']['id']}/fail", {}).status_code == 200
    assert run.client.post(f"/executions/{run.id}/{again}", {}).status_code == 201
    heir = worker(name="heir")
    assert heir.claim() == []
    one.obey()
    assert [claimed["job"]["step"] for claimed in heir.claim()] == ["a"]


def test_a_resubmitted_execution_waits_for_taken_attempts_of_the_first(worker, submit, api):
    job, one = submit(action={"type": "execution", "name": "inner", "steps": [step("a")]}), worker(name="one")
    attempt, operator = one.hold(), api("operator")
    assert operator.post(f"/jobs/{attempt['job']['id']}/fail", {}).status_code == 200
    assert operator.post(f"/jobs/{job['id']}/resubmit", {}).status_code == 201
    heir = worker(name="heir")
    assert heir.claim() == []
    one.obey()
    assert [claimed["job"]["step"] for claimed in heir.claim()] == ["a"]


def test_a_slow_claim_starts_no_code_while_the_previous_attempt_may_run(taken):
    one, heir, _attempt = taken()
    row = TakenAttempt.objects.get()
    TakenAttempt.objects.all().delete()
    (second,) = heir.claim()
    row.pk = None
    row.save()
    assert heir.start(second)["accepted"] is False
    assert Attempt.objects.get(pk=second["id"]).state == "CLAIMED"
    one.obey()
    assert heir.start(second)["accepted"] is True


def test_a_taken_claim_is_reported_to_its_worker_and_delays_no_attempt(worker, submit, api, clock):
    job, one = submit(), worker()
    attempt = one.hold(running=False)["id"]
    moved_by_an_operator(job, api, clock)
    assert len(worker(name="heir").claim()) == 1
    assert one.beat(state="RUNNING").json()["lost"] == [attempt]
    assert one.beat(state="RUNNING").json()["lost"] == []


@pytest.mark.parametrize(("strategy", "stops"), [(AT_ONCE, TIMEOUT), (AFTER, TIMEOUT + GRACE), (NEVER, TIMEOUT)])
def test_a_silent_worker_keeps_the_next_attempt_waiting_until_its_fence_has_passed(taken, clock, strategy, stops):
    config = {"worker_task_restart_strategy": strategy, "termination_grace_period_seconds": GRACE}
    _, heir, _ = taken(config=config)
    clock.advance(stops - 0.002)
    heir.beat()
    check_liveness()
    assert heir.claim() == []
    clock.advance(0.002)
    heir.beat()
    check_liveness()
    assert len(heir.claim()) == 1


def test_a_worker_that_does_not_stop_delays_the_job_only_for_cancel_timeout(taken, clock):
    one, heir, attempt = taken()
    one.beat(stopped=[])
    for _ in range(5):
        pass_time(clock, 10, one, heir, stopped=[])
    assert heir.claim() == []
    pass_time(clock, CANCEL - 50 + 1, one, heir, stopped=[])
    assert len(heir.claim()) == 1
    event = ServerEvent.objects.get(action="does_not_stop")
    assert (str(event.server_id), attempt in event.reason) == (one.id, True)


def test_a_worker_has_the_whole_cancel_timeout_after_an_outage(taken, clock, settings):
    settings.JOBS = {**settings.JOBS, "CANCEL_TIMEOUT": 10}
    one, heir, attempt = taken()
    clock.step(20)
    assert heir.beat(stopped=[]).status_code == 200
    Server.objects.filter(pk=one.id).update(heard_observed=ObservedNow())  # later than the next check will count
    detection.advance_clock()  # no heartbeat has proved that heartbeats arrive, so observed time does not move
    assert one.beat(stopped=[]).json()["lost"] == [attempt]
    one.beat(stopped=[])
    check_liveness()
    assert heir.claim() == []


@pytest.mark.parametrize("end", ["ERROR", "TERMINATED_FORCED", "TERMINATED_GRACEFULLY"])
def test_a_worker_that_has_ended_holds_nobody_back(taken, end):
    one, heir, _ = taken()
    one.beat(state=end)
    check_liveness()
    assert len(heir.claim()) == 1


def test_a_failed_job_is_reported_to_its_worker_though_nothing_waits_for_it(worker, submit, api):
    job, one = submit(), worker()
    attempt = one.hold()["id"]
    assert api("operator").post(f"/jobs/{job['id']}/fail", {}).status_code == 200
    assert one.beat(state="RUNNING").json()["lost"] == [attempt]


def test_a_job_shows_that_it_waits_for_the_end_of_its_last_attempt(taken, submit, api):
    one, *_ = taken()
    job = submit.client.get("/jobs").json()["items"][0]["id"]
    assert submit.client.get(f"/jobs/{job}/placement").json()["waiting_for"] == {
        "what": "stop", "server": {"id": one.id, "name": "one"}, "until": None,
    }  # fmt: skip
    one.obey()
    assert submit.client.get(f"/jobs/{job}/placement").json()["waiting_for"] is None


# The fence ends at the earliest possible moment minus the margin, in every situation


class Agent:
    """Model of an agent with its own fence, by the clock of the test.

    It follows instructions, and stops its code at the fence.
    """

    def __init__(self, one, attempt):
        self.one, self.attempt, self.now = one, attempt, 0.0
        self.fence = Fence(clock=lambda: self.now)
        self.config = ServerConfig.from_answer(one.registration["config"])
        self.state, self.has_stopped, self.stopped_at, self.has_said_so = "RUNNING", False, None, False
        self.beat()

    def stop(self, at):
        if not self.has_stopped:
            self.has_stopped, self.stopped_at = True, at

    def look(self):
        if self.fence.has_passed():
            self.stop(self.fence.deadline)

    def beat(self, *, is_answered=True):
        self.heard_at, self.has_said_so = self.now, self.has_stopped
        answer = self.one.beat(state=self.state, stopped=[self.attempt] if self.has_stopped else [])
        if not is_answered:
            return
        body = answer.json()
        if answer.status_code == 200:
            self.fence.renew_deadline(self.now, body["fence_after_seconds"], lifts=body["state"] == "TERMINATING")
            if self.attempt in body["lost"]:
                self.stop(self.now)
        elif body["code"] == "server_not_running":
            self.stop(self.now)
        elif body["code"] == "server_disconnected":
            self.terminate()

    def terminate(self):
        if self.config.last_fence_seconds is not None:
            self.fence.shorten_deadline(self.config.last_fence_seconds)
        self.state = "TERMINATING"


OPERATIONS = ["beat", "unanswered", "terminating", "silence", "silence", "resubmit", "again", "disconnect", "drain",
              "by hand", "release"]  # fmt: skip


@contextmanager
def rolled_back():
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.mark.exhaustive
@given(
    strategy=st.sampled_from([AFTER, AT_ONCE, NEVER]),
    timeout=st.sampled_from([26.0, 45.0]),
    grace=st.sampled_from([0.0, 10.0, 60.0]),
    policy=st.sampled_from(["RESUBMIT", "FAIL"]),
    job_timeout=st.sampled_from([None, 15.0]),
    crowd=st.sampled_from([0, 2]),
    is_enabled=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.sampled_from([0.5, 3.0, 12.0, 40.0])), max_size=6),
)
@example(AFTER, 45.0, 60.0, "RESUBMIT", None, 0, True, [("terminating", 3.0)])
@example(AFTER, 45.0, 60.0, "RESUBMIT", None, 0, True, [("terminating", 0.5)])
@example(AFTER, 26.0, 0.0, "RESUBMIT", None, 0, True, [("terminating", 3.0), ("beat", 12.0), ("beat", 12.0)])
@example(AFTER, 45.0, 60.0, "RESUBMIT", None, 0, True, [("again", 0.5), ("again", 0.5)])
@example(AT_ONCE, 45.0, 60.0, "RESUBMIT", None, 2, True, [("resubmit", 0.5), ("drain", 3.0)])
@examples(
    max_examples=15,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # show a failure unchanged, because making it smaller takes minutes
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_next_attempt_never_begins_before_the_one_before_has_stopped(
    worker, submit, api, settings, strategy, timeout, grace, policy, job_timeout, crowd, is_enabled, steps
):
    settings.LIVENESS = {"ENABLED": is_enabled, "BRAKE_MAX_HOLD": 60}
    settings.JOBS = {"RUNNING_STALE_AFTER": 60, "CANCEL_TIMEOUT": 60}
    with rolled_back():
        clock = Clock()
        clock.freeze()
        retries = {"max_retries": 9, "retry_on": ["WORKER_CRASHED", "STEP_TIMEOUT"]}
        job = submit(on_worker_lost=policy, timeout_seconds=job_timeout, **retries)["id"]
        one = worker(
            name="one",
            old=True,
            config={
                "worker_task_restart_strategy": strategy,
                "timeout_seconds": timeout,
                "termination_grace_period_seconds": grace,
            },
        )
        agent = Agent(one, one.hold()["id"])
        for number in range(crowd):  # they fall silent too, so the brake holds all of them
            worker(name=f"crowd-{number}", old=True, max_concurrent=0)
        heir, operator = worker(name="heir"), api("operator")

        def history():
            case = (strategy, timeout, grace, policy, job_timeout, crowd, is_enabled, steps)
            return case, list(Attempt.objects.values_list("number", "state", "reason", "claimed_at", "finished_at"))

        def pass_time(seconds):
            """Return True if the second worker got the job. Then the code must not run anywhere else."""
            while seconds > 0:
                clock.advance(min(seconds, 9))
                agent.now += min(seconds, 9)
                seconds -= 9
                agent.look()
                heir.beat()
                check_liveness()
                sweep.run_sweep()
                if attempts := heir.claim():
                    if strategy == NEVER:  # without a fence the server only has to be lost
                        assert agent.has_stopped or agent.now >= agent.heard_at + timeout
                        return True
                    assert agent.has_stopped, (attempts, agent.fence.remaining_seconds(), history())
                    if agent.stopped_at == agent.fence.deadline and not agent.has_said_so:
                        assert agent.now >= agent.stopped_at + timeout * 0.2 - 0.01, history()
                    return True
            return False

        for operation, seconds in [*steps, ("silence", 2 * timeout + 2 * grace + 70)]:
            match operation:
                case "beat" | "unanswered":
                    agent.beat(is_answered=operation == "beat")
                case "terminating":
                    agent.terminate()
                    agent.beat(is_answered=seconds > 1)
                case "resubmit":
                    operator.post(f"/jobs/{job}/resubmit", {})
                case "again":
                    operator.post(f"/jobs/{job}/fail", {})
                    operator.post(f"/jobs/{job}/resubmit", {}, **{"Idempotency-Key": str(uuid.uuid4())})
                case "disconnect":
                    operator.post(f"/servers/{one.id}/disconnect", {"note": ""})
                case "drain":
                    operator.post(f"/servers/{one.id}/drain", {"note": "", "deadline_seconds": seconds})
                case "by hand":
                    sweep.fail_stale_running(seconds, ANN)
                case "release":
                    if Brake.objects.filter(released_by=None).exists():
                        operations.release_brake(ANN, "a test")
            if pass_time(seconds):
                break
