"""The thread that carries reports and claims."""

import threading
import time
from types import SimpleNamespace

import pytest

from controlplane.agent.api.claim_plan import ClaimPlan
from controlplane.agent.api.client import Unreachable
from controlplane.agent.api.outbox import Outbox
from controlplane.agent.api.transport import COMPANY, TransportThread

ASKED = 0.3


@pytest.mark.parametrize("status", [429, 503])
def test_it_comes_again_no_sooner_than_asked_though_heartbeats_are_answered(status):
    calls, ends = [], threading.Event()

    def post(call, body):
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise Unreachable(f"{status}: busy", retry_after=ASKED)
        ends.set()
        return {"attempts": []}

    server = SimpleNamespace(post=post, config=SimpleNamespace(timeout=40))
    courier = TransportThread(server, Outbox(), poll=60, deliver=lambda end: None, refused=lambda: None)
    courier.request_slots(1)
    courier.start()
    while not ends.wait(0.005):
        courier.retry_now()
    courier.close()
    courier.join(10)
    assert calls[1] - calls[0] >= ASKED


def test_it_ends_at_once_though_it_was_asked_to_come_later():
    called = threading.Event()

    def post(call, body):
        called.set()
        raise Unreachable("503: busy", retry_after=3600)

    server = SimpleNamespace(post=post, config=SimpleNamespace(timeout=3600 * 4))
    courier = TransportThread(server, Outbox(), poll=60, deliver=lambda end: None, refused=lambda: None)
    courier.request_slots(1)
    courier.start()
    assert called.wait(10)
    courier.close()
    courier.join(10)
    assert not courier.is_alive()


@pytest.fixture
def sent():
    """Return a thread that is not started, its outbox, and the calls that it has made."""
    calls = []

    def post(call, body):
        calls.append(call)
        if call == "reports":
            # Each report has a successor before it is answered, as on a busy worker.
            outbox.add_reports({"attempt": "later", "event": "COMPLETED"})
            return {"results": [{"accepted": True} for _ in body["reports"]]}
        return {"attempts": []}

    outbox = Outbox()
    server = SimpleNamespace(post=post, config=SimpleNamespace(timeout=40))
    return TransportThread(server, outbox, poll=60, deliver=lambda end: None, refused=lambda: None), outbox, calls


def test_reports_wait_for_others_only_while_no_claim_is_due(sent):
    courier, outbox, calls = sent
    outbox.add_reports({"attempt": "one", "event": "COMPLETED"})
    courier.request_slots(0, may_wait=True)
    assert 0 < courier.send_and_claim() <= COMPANY
    assert calls == []
    courier.request_slots(0, ahead=10, may_wait=True)
    pause = courier.send_and_claim()
    assert calls == ["reports", "claims"], "the claim knows which attempts have ended, and waits for no later report"
    assert pause <= COMPANY, "the later report is not forgotten"


@pytest.mark.parametrize(("jobs", "is_due"), [(2, False), (3, True)])
def test_a_claim_ahead_that_finds_few_jobs_is_followed_later(jobs, is_due):
    plan = ClaimPlan()
    plan.want(0, ahead=12)  # six of them are held
    plan.end(plan.begin(60), jobs)
    plan.is_claiming = False
    assert plan.is_due(60) is is_due


def test_a_worker_claims_again_after_a_hint_for_slots_that_it_has_filled():
    plan = ClaimPlan()
    plan.want(1, ahead=4)
    plan.follow_hint(1)
    plan.want(0, ahead=4)
    assert plan.begin(60) is None, "the other jobs are for idle workers"
    plan.want(1, ahead=4)
    assert plan.begin(60).items() >= {"limit": 1, "ahead": 4}.items()


def test_a_claim_that_is_not_counted_yet_lets_the_thread_sleep(sent):
    courier, _, calls = sent
    courier.request_slots(1)
    courier._plan.end(courier._plan.begin(60), 1)
    assert courier.send_and_claim() > 0
    assert calls == []


def test_a_report_after_one_that_was_withdrawn_waits_for_others_no_longer(sent):
    courier, outbox, _ = sent
    outbox.add_reports({"attempt": "one", "event": "STARTED"})
    courier.request_slots(0, may_wait=True)
    outbox.withdraw_reports("one")
    courier._woken.clear()
    outbox.add_reports({"attempt": "two", "event": "COMPLETED"})
    courier.request_slots(0, may_wait=True)
    assert courier._woken.is_set()
