"""The thread that waits for hints: when it asks again, and when claims are left to it."""

import threading
from types import SimpleNamespace

import pytest

from controlplane.agent.api import hints
from controlplane.agent.api.client import Refused, Unreachable
from controlplane.agent.api.hints import LONGEST_EMPTY_CLAIM_PAUSE, REFUSED_PAUSE, HintThread
from controlplane.agent.api.outbox import Outbox
from controlplane.agent.api.registration import ANY_NUMBER, RegisteredServer
from controlplane.agent.api.transport import TransportThread


class Asked:
    """A server whose hints are answered in turn: a number of jobs, or what is raised."""

    config = SimpleNamespace(timeout=40)

    def __init__(self, *answers):
        self.answers, self.claims = list(answers), 0

    def wait_for_hint(self, seconds):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def post(self, call, body):
        self.claims += 1
        return {"attempts": []}


def thread(server, hint=lambda jobs: None):
    changes = []
    made = HintThread(server, hint, lambda: changes.append(made.are_held_open))
    return made, changes


@pytest.fixture
def at_once_is_kept(monkeypatch):
    monkeypatch.setattr(hints, "HELD_OPEN_AFTER", 0.0)


def test_kept_back_for_its_time_it_asks_again_at_once_and_claims_are_left_to_it(at_once_is_kept):
    waiting, changes = thread(Asked(0, 0))
    assert waiting.wait_once() == 0 and waiting.are_held_open
    assert waiting.wait_once() == 0 and changes == [True]


def test_quick_answers_without_work_make_its_calls_rarer_and_claims_go_on_as_before():
    waiting, changes = thread(Asked(*[0] * 20))
    pauses = [waiting.wait_once() for _ in range(20)]
    assert not waiting.are_held_open and changes == [False]
    assert pauses[0] <= 2 and max(pauses) <= REFUSED_PAUSE


def test_without_hints_it_asks_again_much_later_and_claims_are_made_as_before():
    waiting, changes = thread(Asked(Refused(404, "not_found", "no")))
    assert waiting.wait_once() == REFUSED_PAUSE and changes == [False]


def test_out_of_reach_claims_are_made_as_before_until_an_answer_is_kept_back_again(at_once_is_kept):
    waiting, changes = thread(Asked(0, Unreachable("down", retry_after=3), 0))
    assert waiting.wait_once() == 0
    assert waiting.wait_once() >= 3 and not waiting.are_held_open
    assert waiting.wait_once() == 0 and changes == [True, False, True]


def test_it_pauses_longer_after_each_empty_claim_and_not_after_a_successful_one():
    def claim(jobs):
        waiting.record_claim(brought.pop(0), is_more_wanted=True)

    brought = [0] * 12 + [1]
    waiting, _ = thread(Asked(*[1] * 13), claim)
    pauses = [waiting.wait_once() for _ in range(13)]
    assert pauses[:3] == [0.1, 0.2, 0.4] and pauses[11] == LONGEST_EMPTY_CLAIM_PAUSE and pauses[12] == 0


def test_it_waits_only_after_a_claim_that_left_room(at_once_is_kept):
    waiting, _ = thread(Asked())
    waiting.record_claim(1, is_more_wanted=False)
    assert not waiting._wanted.is_set()
    waiting.record_claim(1, is_more_wanted=True)
    assert waiting._wanted.is_set()
    waiting.set_wanted(False)
    assert not waiting._wanted.is_set()


def test_a_hint_is_claimed_at_once_however_seldom_claims_are_made_without_one():
    server = Asked()
    claimed, asked = threading.Event(), threading.Event()

    def wait_for_hint(seconds):
        asked.set()
        assert hinted.wait(10)
        hinted.clear()
        return 1

    def post(call, body):
        server.claims += 1
        claimed.set()
        return {"attempts": []}

    hinted = threading.Event()
    server.wait_for_hint, server.post = wait_for_hint, post
    waiting = HintThread(server, lambda jobs: transport.claim_now(jobs), lambda: transport.act_now())
    transport = TransportThread(
        server, Outbox(), 3600, lambda end: transport.acknowledge_claim(), refused=lambda: None, hints=waiting
    )
    transport.request_slots(1)
    transport.start()
    waiting.start()
    assert claimed.wait(10) and asked.wait(10)
    claimed.clear()
    hinted.set()
    assert claimed.wait(10)
    transport.close()
    hinted.set()
    transport.join(10)
    waiting.join(10)
    assert not transport.is_alive() and not waiting.is_alive()


def test_it_claims_its_share_of_what_waits_and_no_more_before_it_is_woken_again():
    claims = []

    def post(call, body):
        claims.append(body["limit"])
        return {"attempts": [{}] * body["limit"]}

    server = SimpleNamespace(post=post, config=SimpleNamespace(timeout=40))
    transport = TransportThread(server, Outbox(), 3600, lambda end: transport.acknowledge_claim(), lambda: None)
    transport.request_slots(8)
    transport.claim_now(3)
    for _ in range(2):
        transport.send_and_claim()
    assert claims == [3], "the other jobs are for others"
    transport.claim_now(100)
    transport.send_and_claim()
    assert claims == [3, 8], "it has no more room"
    transport.request_slots(0)
    transport.request_slots(2)
    transport.send_and_claim()
    assert claims == [3, 8, 2], "what becomes free is filled at once"


@pytest.mark.parametrize(
    ("answer", "jobs"), [({"work": False}, 0), ({"work": True, "jobs": 4}, 4), ({"work": True}, ANY_NUMBER)],
    ids=["none", "share", "unknown"],
)  # fmt: skip
def test_a_hint_limits_the_claim_to_its_number_of_jobs_or_leaves_it_to_the_worker(answer, jobs):
    client = SimpleNamespace(base="", timeout=1, request=lambda *call, **options: answer)
    assert RegisteredServer(client, "1", "t", None, None, 0.0).wait_for_hint(1) == jobs
