"""Who is lost, when what it holds may go back, and until when code may run: one step at a time."""

from __future__ import annotations

import pytest
from kombu import Connection

from controlplane.agent.celery import keys
from controlplane.agent.celery.fence import FIRST, TwoWitnesses
from controlplane.agent.celery.holdings import Holdings
from controlplane.agent.celery.rescue import ASKED, Rescue
from controlplane.agent.celery.restoring import Outcome
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


def test_a_new_heart_has_a_minute_to_be_answered(fence, clock, deadlines):
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
        fence.unmarked(clock.now)


def test_while_the_broker_is_away_the_control_plane_alone_is_enough(fence, clock):
    for second in range(0, 600, 3):
        clock.now = 1000 + second
        assert not fence.has_passed()
        fence.renew_deadline(clock.now, 36)


def test_with_both_away_it_passes_when_the_later_of_both_does(fence, clock, deadlines):
    clock.now = 2000
    fence.renew_deadline(2000, 36)
    fence.unmarked(2035)
    assert deadlines[-1] == 2037
    clock.now = 2036.99
    assert not fence.has_passed()
    clock.now = 2037
    assert fence.has_passed()


def test_a_mark_read_counts_from_before_it_was_asked_for(fence, clock, deadlines):
    clock.now = 1100
    fence.unmarked(1099)
    assert deadlines[-1] == 1101


def test_the_first_minute_is_for_those_who_were_never_answered(fence, clock, deadlines):
    fence.unmarked(1000)
    assert deadlines[-1] == 1002
    fence.renew_deadline(1000, 2.4)
    assert deadlines[-1] == 1002.4


def test_where_nothing_is_ever_given_away_there_is_no_deadline(fence, clock, deadlines):
    fence.renew_deadline(1000, None)
    clock.now = 1e9
    assert not fence.has_passed() and deadlines[-1] is None


def test_where_the_broker_decides_the_control_plane_prolongs_nothing(clock, deadlines):
    fence = TwoWitnesses(2.0, deadlines.append, clock, broker_decides=True)
    clock.now = 1000 + FIRST
    fence.renew_deadline(clock.now, 1000)
    assert fence.has_passed()


@pytest.fixture
def holdings(redis_server):
    holdings = Holdings(Connection(redis_server.url))
    yield holdings
    holdings.close()


@pytest.fixture
def dead(redis, redis_server, holdings):
    broker = Broker(redis_server.url)
    broker.publish("a")
    broker.take("dead", 1)
    holdings.enter("dead")
    yield broker
    for connection in broker.open:
        connection.close()


@pytest.fixture
def rescue(holdings, clock):
    return Rescue("me", holdings, 0.05, 3, clock)


def test_nothing_is_taken_from_who_is_not_forsaken(rescue, dead, holdings, redis):
    rescue.hear({"forsaken": [], "unknown": []}, 60)
    assert rescue.run_once() == {} and rescue.holders == ["dead"]
    assert not redis.exists(keys.condemned("dead")) and holdings.count("dead") == 1


def test_the_forsaken_are_marked_first_and_taken_from_only_later(rescue, dead, clock, redis):
    rescue.hear({"forsaken": ["dead"]}, 60)
    assert rescue.run_once() == {} and redis.exists(keys.condemned("dead"))
    assert rescue.waiting()
    while redis.pttl(keys.condemned("dead")) > (keys.MARK_KEPT - 0.06) * 1000:
        pass  # the mark's age is by the clock of Redis
    assert rescue.run_once() == {}, "by our own clock no time has gone by"
    clock.now += 0.06
    assert rescue.run_once() == {Outcome.RESTORED: 1}
    assert dead.losses() == {"a": 1}


def test_a_mark_that_was_lost_with_its_redis_begins_anew(holdings, dead, clock, redis):
    rescue = Rescue("me", holdings, 60.0, 3, clock)
    rescue.hear({"forsaken": ["dead"]}, 60)
    rescue.run_once()
    redis.delete(keys.condemned("dead"))
    clock.now += 61
    assert rescue.run_once() == {} and holdings.count("dead") == 1


def test_we_never_take_from_ourselves(rescue, holdings, redis):
    rescue.hear({"forsaken": ["me"]}, 60)
    rescue.run_once()
    assert not redis.exists(keys.condemned("me"))


def test_who_never_registered_is_lost_only_when_unknown_for_long(rescue, dead, clock):
    rescue.hear({"unknown": ["dead"]}, 60)
    clock.now += 59.99
    rescue.hear({"unknown": ["dead"]}, 60)
    assert rescue.lost() == set()
    clock.now += 0.01
    assert rescue.lost() == {"dead"}


def test_who_was_known_meanwhile_begins_to_be_unknown_anew(rescue, clock):
    rescue.hear({"unknown": ["dead"]}, 60)
    rescue.hear({"unknown": []}, 60)
    clock.now += 100
    rescue.hear({"unknown": ["dead"]}, 60)
    assert rescue.lost() == set()


def test_an_outage_of_the_control_plane_counts_for_nobody(rescue, clock):
    rescue.hear({"unknown": ["dead"]}, 60)
    clock.now += 30
    rescue.unheard()
    clock.now += 100
    rescue.hear({"unknown": ["dead"]}, 60)
    assert rescue.lost() == set()


def test_a_condemned_holder_is_looked_at_again_for_an_hour(rescue, dead, clock, redis, holdings):
    rescue.hear({"forsaken": ["dead"]}, 60)
    redis.set(keys.condemned("dead"), "me", ex=keys.MARK_KEPT - 10)
    rescue.run_once()
    clock.now += 1
    assert rescue.run_once() == {Outcome.RESTORED: 1}
    dead.take("dead", 1)  # it woke, and took it before it saw the mark
    assert rescue.run_once() == {Outcome.RESTORED: 1}
    redis.expire(keys.condemned("dead"), keys.MARK_KEPT - keys.HOLDER_KEPT - 10)
    rescue.run_once()
    assert holdings.holders() == ["me"]


def test_of_many_holders_some_are_asked_for_and_of_the_others_what_was_heard_holds(rescue):
    rescue.holders = [str(nth) for nth in range(ASKED + 1)]
    asked = rescue.ask()
    assert len(asked) == ASKED and set(asked) < set(rescue.holders)
    (left,) = set(rescue.holders) - set(asked)
    rescue.hear({"forsaken": asked[:2], "unknown": []}, 60)
    rescue._asked = {left, asked[0]}
    rescue.hear({"forsaken": [left], "unknown": []}, 60)
    assert rescue.lost() == {left, asked[1]}


def test_an_answer_that_says_nothing_of_holders_changes_nothing(rescue):
    rescue.hear({"forsaken": ["dead"], "unknown": []}, 60)
    rescue.hear({}, 60)
    assert rescue.lost() == {"dead"}


def test_what_is_to_be_sent_again_is_said_once(rescue):
    rescue.hear({"forsaken": [], "unknown": [], "send": ["t"]}, 60)
    assert (rescue.to_send(), rescue.to_send()) == (["t"], [])
