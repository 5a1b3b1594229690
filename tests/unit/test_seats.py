"""Threads for calls when there are more calls than threads; the loop runs step by step."""

import asyncio

import pytest

from controlplane.serving import seats as seating
from controlplane.serving.seats import QUEUE_OF_ONE, QUEUES, Call, CallKind, Overloaded, Seats, TooManyCalls

CLIENT, OTHER, THIRD = (Call(CallKind.GENERAL, key) for key in ("client", "other", "third"))
SIGN_IN, PROBE = Call(CallKind.SIGN_IN, "sign-in 192.0.2.1"), Call(CallKind.PROBE, "probe 192.0.2.1")
ENOUGH = 30.0


def beat(server):
    return Call(CallKind.HEARTBEAT_OR_REPORT, server)


def claim(server):
    return Call(CallKind.CLAIM, server)


class Hall:
    """Calls that ask for a seat. `seated` lists the calls that have a seat, in the order in which they got it."""

    def __init__(self, number):
        self.seats, self.seated, self.tasks = Seats(number), [], []

    async def ask(self, *calls, gone=None):
        gone = gone or asyncio.Event().wait
        for call in calls:
            self.tasks.append(task := asyncio.create_task(self.sit(call, gone)))
            await asyncio.sleep(0)
        return task

    async def sit(self, call, gone):
        if await self.seats.take(call, gone):
            self.seated.append(call)
            return True
        return False

    async def leave(self, call):
        self.seats.leave(call)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
def hall(monkeypatch):
    """Run a scenario in a hall of five seats without timeouts."""
    monkeypatch.setattr(seating, "WAIT", ENOUGH)

    def run(scenario, number=5):
        async def all_of_it():
            hall = Hall(number)
            await scenario(hall)
            for task in hall.tasks:
                task.cancel()
            await asyncio.gather(*hall.tasks, return_exceptions=True)

        asyncio.run(all_of_it())

    return run


@pytest.mark.parametrize("number", [3, 5, 8])
def test_calls_of_the_outside_leave_two_seats(hall, number):
    async def scenario(hall):
        await hall.ask(*(Call(CallKind.GENERAL, f"client {one}") for one in range(20)))
        assert len(hall.seated) == number - 2
        await hall.ask(SIGN_IN, PROBE)
        assert hall.seated[number - 2 :] == [SIGN_IN], "and these one: the last is for servers"
        await hall.ask(beat("a"))
        assert hall.seated[-1] == beat("a") and len(hall.seated) == number

    hall(scenario, number)


def test_servers_leave_one_seat_to_all_others(hall):
    async def scenario(hall):
        await hall.ask(*(beat(f"server {one}") for one in range(20)))
        assert len(hall.seated) == 4
        await hall.ask(CLIENT)
        assert hall.seated[-1] == CLIENT

    hall(scenario)


def test_one_server_has_two_at_once_and_the_third_waits_for_its_own(hall):
    async def scenario(hall):
        await hall.ask(beat("a"), claim("a"), beat("a"), beat("b"))
        assert hall.seated == [beat("a"), claim("a"), beat("b")]
        await hall.leave(claim("a"))
        assert hall.seated[3:] == [beat("a")]

    hall(scenario)


def test_one_token_has_no_more_than_half_of_what_tokens_have(hall):
    async def scenario(hall):
        await hall.ask(*[CLIENT] * 10, OTHER)
        assert hall.seated == [CLIENT, CLIENT, OTHER]

    hall(scenario)


def test_each_token_that_waits_has_its_turn(hall):
    async def scenario(hall):
        await hall.ask(OTHER, THIRD, *[CLIENT] * 3, *[OTHER] * 3, *[THIRD] * 3)
        assert hall.seated == [OTHER, THIRD, CLIENT]
        for one in (OTHER, THIRD, CLIENT, OTHER):
            await hall.leave(one)
        assert [call.key for call in hall.seated[3:]] == ["client", "other", "third", "client"]

    hall(scenario)


def test_heartbeats_and_reports_go_first_then_claims(hall):
    async def scenario(hall):
        await hall.ask(beat("a"), beat("b"), beat("c"), CLIENT, SIGN_IN)
        assert len(hall.seated) == 5
        await hall.ask(OTHER, claim("d"), PROBE, beat("e"))
        for one in (beat("a"), beat("b")):
            await hall.leave(one)
        assert hall.seated[5:] == [beat("e"), claim("d")]
        await hall.leave(SIGN_IN)
        assert hall.seated[7:] == [PROBE]

    hall(scenario)


def test_a_call_that_waits_too_long_is_asked_to_try_again(hall, monkeypatch):
    async def scenario(hall):
        await hall.ask(CLIENT, CLIENT, OTHER)
        monkeypatch.setattr(seating, "WAIT", 0.01)
        with pytest.raises(TooManyCalls):
            await (await hall.ask(CLIENT))
        with pytest.raises(Overloaded):
            await (await hall.ask(THIRD))
        await hall.leave(CLIENT)
        await hall.ask(THIRD)
        assert hall.seated[3:] == [THIRD], "those who gave up are not in the way"

    hall(scenario)


def test_one_whose_caller_has_gone_gets_no_seat(hall):
    async def scenario(hall):
        await hall.ask(CLIENT, CLIENT, OTHER)
        hangs_up = asyncio.Event()
        waiting = await hall.ask(THIRD, gone=hangs_up.wait)
        hangs_up.set()
        assert await waiting is False
        await hall.leave(OTHER)
        await hall.ask(OTHER)
        assert hall.seated == [CLIENT, CLIENT, OTHER, OTHER]

    hall(scenario)


def test_one_who_is_cancelled_gives_its_seat_back(hall):
    async def scenario(hall):
        await hall.ask(CLIENT, CLIENT, OTHER)
        waiting = await hall.ask(THIRD)
        hall.seats.leave(OTHER)
        waiting.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        await hall.ask(OTHER)
        assert hall.seated[3:] == [OTHER]

    hall(scenario)


def test_a_caller_with_a_full_line_is_refused_at_once(hall):
    async def scenario(hall):
        await hall.ask(*[CLIENT] * (2 + QUEUE_OF_ONE))
        with pytest.raises(TooManyCalls):
            await (await hall.ask(CLIENT))
        await hall.ask(beat("a"), OTHER)
        assert hall.seated[2:] == [beat("a"), OTHER], "others have their seats"

    hall(scenario)


def test_in_a_full_line_the_caller_with_the_most_calls_loses_its_last_one(hall, monkeypatch):
    monkeypatch.setitem(QUEUES, "strangers", 4)
    crowd, newcomer = (Call(CallKind.GENERAL, f"address {number}", is_strange=True) for number in (1, 2))

    async def scenario(hall):
        await hall.ask(CLIENT, CLIENT, OTHER)
        last = await hall.ask(*[crowd] * 4)
        await hall.ask(newcomer)
        with pytest.raises(TooManyCalls):
            await last
        await hall.leave(OTHER)
        await hall.leave(CLIENT)
        assert hall.seated[3:] == [crowd, newcomer], "each caller has its turn"

    hall(scenario)


def test_a_newcomer_is_refused_where_every_caller_waits_with_one_call(hall, monkeypatch):
    monkeypatch.setitem(QUEUES, "strangers", 4)

    async def scenario(hall):
        await hall.ask(CLIENT, CLIENT, OTHER)
        await hall.ask(*(Call(CallKind.GENERAL, f"address {number}", is_strange=True) for number in range(4)))
        with pytest.raises(Overloaded):
            await (await hall.ask(Call(CallKind.GENERAL, "address 4", is_strange=True)))
        await hall.ask(THIRD)
        await hall.leave(OTHER)
        assert len(hall.seated) == 4, "known callers wait in a line of their own"

    hall(scenario)


def test_probes_and_sign_ins_of_one_address_do_not_stop_those_of_another(hall):
    probes = [Call(CallKind.PROBE, f"probe 192.0.2.{number}", is_strange=True) for number in (1, 2)]

    async def scenario(hall):
        await hall.ask(*[probes[0]] * QUEUE_OF_ONE, probes[1])
        for _ in range(2):
            await hall.leave(hall.seated[-1])
        assert probes[1] in hall.seated, "each address has its turn"

    hall(scenario)
