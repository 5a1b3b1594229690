"""The fence of a worker, and the rescue of lost workers' messages: one step at a time."""

from __future__ import annotations

import pytest
from kombu import Connection

from controlplane.agent.celery.broker import keys
from controlplane.agent.celery.broker.restoring import Outcome
from controlplane.agent.celery.broker.unacked import UnackedMessages
from controlplane.agent.celery.heart.fence import FIRST, TwoWitnesses
from controlplane.agent.celery.heart.rescue import ASKED, Rescue
from tests.unit.celery_agent.test_restoring import Broker


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def deadlines():
    return []


@pytest.fixture
def fence(clock, deadlines):
    return TwoWitnesses(2.0, deadlines.append, clock)


def test_a_new_heart_has_a_minute_for_its_first_answer(fence, clock, deadlines):
    assert deadlines == [1000 + FIRST]
    clock.now = 1000 + FIRST - 0.01
    assert not fence.has_passed()
    clock.now = 1000 + FIRST
    assert fence.has_passed()


def test_while_the_control_plane_is_away_the_broker_alone_is_enough(fence, clock):
    fence.renew_deadline(1000, 36)
    for second in range(1, 600):
        clock.now = 1000 + second
        assert not fence.has_passed()
        fence.record_unmarked(clock.now)


def test_while_the_broker_is_away_the_control_plane_alone_is_enough(fence, clock):
    for second in range(0, 600, 3):
        clock.now = 1000 + second
        assert not fence.has_passed()
        fence.renew_deadline(clock.now, 36)


def test_with_both_away_the_later_deadline_counts(fence, clock, deadlines):
    clock.now = 2000
    fence.renew_deadline(2000, 36)
    fence.record_unmarked(2035)
    assert deadlines[-1] == 2037
    clock.now = 2036.99
    assert not fence.has_passed()
    clock.now = 2037
    assert fence.has_passed()


def test_the_absence_of_a_mark_counts_from_the_time_of_the_question(fence, clock, deadlines):
    clock.now = 1100
    fence.record_unmarked(1099)
    assert deadlines[-1] == 1101


def test_the_first_minute_ends_with_the_first_answer(fence, clock, deadlines):
    fence.record_unmarked(1000)
    assert deadlines[-1] == 1002
    fence.renew_deadline(1000, 2.4)
    assert deadlines[-1] == 1002.4


def test_there_is_no_deadline_if_the_control_plane_sets_none(fence, clock, deadlines):
    fence.renew_deadline(1000, None)
    clock.now = 1e9
    assert not fence.has_passed() and deadlines[-1] is None


def test_on_rabbitmq_only_looks_of_the_heart_extend_the_deadline(clock, deadlines):
    fence = TwoWitnesses(2.0, deadlines.append, clock, alive_for=8)
    assert deadlines == [1000 + FIRST]
    fence.renew_deadline(1000, None)
    fence.record_look(1000)
    assert deadlines[-1] == 1008
    fence.renew_deadline(1000, 5)
    assert deadlines[-1] == 1005
    fence.record_unmarked(1004)
    assert deadlines[-1] == 1006
    clock.now = 1006
    assert fence.has_passed()


@pytest.fixture
def unacked(redis_server):
    unacked = UnackedMessages(Connection(redis_server.url))
    yield unacked
    unacked.close()


@pytest.fixture
def dead(redis, redis_server, unacked):
    broker = Broker(redis_server.url)
    broker.publish("a")
    broker.take("dead", 1)
    unacked.enter("dead")
    yield broker
    for connection in broker.open:
        connection.close()


@pytest.fixture
def rescue(unacked, clock):
    return Rescue("me", unacked, 0.05, 3, clock)


def test_no_messages_are_taken_from_a_holder_that_is_not_lost(rescue, dead, unacked, redis):
    rescue.record_answer({"forsaken": [], "unknown": []}, 60)
    assert rescue.run_once() == {} and rescue.holders == ["dead"]
    assert not redis.exists(keys.condemned("dead")) and unacked.count("dead") == 1


def test_a_lost_holder_is_marked_some_time_before_its_messages_return(rescue, dead, clock, redis):
    rescue.record_answer({"forsaken": ["dead"]}, 60)
    assert rescue.run_once() == {} and redis.exists(keys.condemned("dead"))
    assert rescue.waiting()
    while redis.pttl(keys.condemned("dead")) > (keys.MARK_KEPT - 0.06) * 1000:
        pass  # the mark's age is by the clock of Redis
    assert rescue.run_once() == {}, "by our own clock no time has gone by"
    clock.now += 0.06
    assert rescue.run_once() == {Outcome.RESTORED: 1}
    assert dead.losses() == {"a": 1}


def test_messages_of_an_instance_whose_end_is_proved_return_without_a_mark(rescue, dead, redis, unacked):
    rescue.run_once()
    rescue.record_end("dead")
    assert rescue.waiting()
    assert rescue.run_once() == {Outcome.RESTORED: 1}
    assert not redis.exists(keys.condemned("dead"))
    assert unacked.holders() == ["me"] and not rescue.waiting()


def test_a_mark_that_redis_lost_is_set_again_and_waited_for(unacked, dead, clock, redis):
    rescue = Rescue("me", unacked, 60.0, 3, clock)
    rescue.record_answer({"forsaken": ["dead"]}, 60)
    rescue.run_once()
    redis.delete(keys.condemned("dead"))
    clock.now += 61
    assert rescue.run_once() == {} and unacked.count("dead") == 1


def test_a_rescue_never_marks_its_own_worker(rescue, unacked, redis):
    rescue.record_answer({"forsaken": ["me"]}, 60)
    rescue.run_once()
    assert not redis.exists(keys.condemned("me"))


def test_an_unregistered_holder_is_lost_only_when_unknown_for_long(rescue, dead, clock):
    rescue.record_answer({"unknown": ["dead"]}, 60)
    clock.now += 59.99
    rescue.record_answer({"unknown": ["dead"]}, 60)
    assert rescue.lost() == set()
    clock.now += 0.01
    assert rescue.lost() == {"dead"}


def test_the_time_of_an_unknown_holder_restarts_after_it_was_known(rescue, clock):
    rescue.record_answer({"unknown": ["dead"]}, 60)
    rescue.record_answer({"unknown": []}, 60)
    clock.now += 100
    rescue.record_answer({"unknown": ["dead"]}, 60)
    assert rescue.lost() == set()


def test_an_outage_of_the_control_plane_does_not_count_as_unknown(rescue, clock):
    rescue.record_answer({"unknown": ["dead"]}, 60)
    clock.now += 30
    rescue.forget_unknown()
    clock.now += 100
    rescue.record_answer({"unknown": ["dead"]}, 60)
    assert rescue.lost() == set()


def test_a_marked_holder_is_checked_for_an_hour(rescue, dead, clock, redis, unacked):
    rescue.record_answer({"forsaken": ["dead"]}, 60)
    redis.set(keys.condemned("dead"), "me", ex=keys.MARK_KEPT - 10)
    rescue.run_once()
    clock.now += 1
    assert rescue.run_once() == {Outcome.RESTORED: 1}
    dead.take("dead", 1)  # it woke, and took it before it saw the mark
    assert rescue.run_once() == {Outcome.RESTORED: 1}
    redis.expire(keys.condemned("dead"), keys.MARK_KEPT - keys.HOLDER_KEPT - 10)
    rescue.run_once()
    assert unacked.holders() == ["me"]


def test_earlier_answers_stay_valid_for_holders_outside_the_sample(rescue):
    rescue.holders = [str(nth) for nth in range(ASKED + 1)]
    asked = rescue.ask()
    assert len(asked) == ASKED and set(asked) < set(rescue.holders)
    (left,) = set(rescue.holders) - set(asked)
    rescue.record_answer({"forsaken": asked[:2], "unknown": []}, 60)
    rescue._asked = {left, asked[0]}
    rescue.record_answer({"forsaken": [left], "unknown": []}, 60)
    assert rescue.lost() == {left, asked[1]}


def test_an_answer_without_holders_changes_nothing(rescue):
    rescue.record_answer({"forsaken": ["dead"], "unknown": []}, 60)
    rescue.record_answer({}, 60)
    assert rescue.lost() == {"dead"}


def test_tasks_to_send_again_are_returned_once(rescue):
    rescue.record_answer({"forsaken": [], "unknown": [], "send": ["t"]}, 60)
    assert (rescue.to_send(), rescue.to_send()) == (["t"], [])
