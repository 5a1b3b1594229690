"""Idle workers that wait in a web process: which of them are woken for which jobs."""

import asyncio
import threading
import uuid

import pytest

from controlplane.serving import hints
from controlplane.serving.hints import Offer, WorkHints
from jobs.sql.rows.hints import ClaimableJobs, WorkerLoad

ONE, TWO, THREE = (str(uuid.UUID(int=number)) for number in range(1, 4))
LONG = 60


class Silent:
    """Listener that receives nothing."""

    def __init__(self, channel, on_notification):
        self.on_notification = on_notification

    def start(self):
        pass

    def is_alive(self):
        return True

    def close(self):
        pass


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch):
    monkeypatch.setattr(hints, "Listener", Silent)
    monkeypatch.setattr(hints, "CLAIMED_WITHIN", LONG)  # even on a slow machine


async def never():
    await asyncio.Event().wait()


class Jobs(list):
    """Claimable jobs, and the number of looks at them."""

    looks = 0

    def __call__(self, most, offers):
        self.looks += 1
        return list(self)

    def add(self, *tags, jobs=1, refused_by=()):
        ids = [uuid.uuid4() for _ in range(jobs)]
        self.append(ClaimableJobs("default", list(tags), [uuid.UUID(server) for server in refused_by], ids, 1))


class Loads(dict):
    """Loads of workers and their slots. By default a worker is empty and has one slot."""

    tags: dict[str, list[str]]

    def __init__(self):
        self.tags, self.elsewhere = {}, []

    def __call__(self, servers):
        rows = [(str(server), self.tags[str(server)]) for server in servers] + self.elsewhere
        loads = [(server, tags, *self.get(server, (0, 1))) for server, tags in rows]
        return [
            WorkerLoad(uuid.UUID(server), "default", tags, held, slots)
            for server, tags, held, slots in loads if held < slots
        ]  # fmt: skip


def play(story):
    """Run a story with workers that start to wait: `waits(server, *tags)`. Their loads are in `waits.loads`."""
    jobs, loads = Jobs(), Loads()

    async def run():
        work = WorkHints(jobs, loads)

        def waits(server, *tags, seconds=LONG, gone=never):
            loads.tags[server] = list(tags)
            return asyncio.ensure_future(work.wait(server, Offer("default", frozenset(tags)), seconds, gone))

        waits.loads = loads

        try:
            await story(work, jobs, waits)
        finally:
            work.close()

    asyncio.run(run())


async def looked(work, jobs, times=2):
    """Wait until there have been this many further looks."""
    until = jobs.looks + times
    while jobs.looks < until:
        work._wanted.set()
        await asyncio.sleep(0.001)


async def until(what):
    async with asyncio.timeout(LONG):
        while not what():
            await asyncio.sleep(0.001)


async def calm(work):
    """Wait until the look is over and the loop waits for the next reason."""
    await until(lambda: not work._wanted.is_set() and work._wanted._waiters)


def test_a_worker_that_comes_while_work_waits_gets_a_hint_at_once():
    async def story(work, jobs, waits):
        jobs.add("script")
        assert await waits(ONE, "script", "gpu") == 1

    play(story)


def test_as_many_workers_are_woken_as_there_are_jobs_longest_waiting_first():
    async def story(work, jobs, waits):
        calls = [waits(server, "script") for server in (ONE, TWO, THREE)]
        await looked(work, jobs)
        jobs.add("script", jobs=2)
        await looked(work, jobs, 5)
        assert [call.done() for call in calls] == [True, True, False]

    play(story)


def test_the_least_loaded_is_woken_first_and_a_longer_waiting_one_a_moment_later(
    monkeypatch,
):
    async def story(work, jobs, waits):
        waits.loads.update({ONE: (2, 4), TWO: (1, 4), THREE: (9, 10)})
        calls = [waits(server, "script") for server in (ONE, TWO, THREE)]
        await looked(work, jobs)
        jobs.add("script")
        await looked(work, jobs, 5)
        assert [call.done() for call in calls] == [False, True, False]
        monkeypatch.setattr(hints, "CLAIMED_WITHIN", 0.0)  # it did not claim it
        work._wanted.set()
        assert await asyncio.gather(*calls) == [1, 1, 1]

    play(story)


def test_the_next_job_goes_to_the_worker_that_is_then_least_loaded():
    async def story(work, jobs, waits):
        waits.loads.update({ONE: (3, 4), TWO: (0, 4)})
        calls = [waits(server, "script") for server in (ONE, TWO)]
        await looked(work, jobs)
        jobs.add("script", jobs=3)
        await looked(work, jobs, 5)
        assert [call.done() for call in calls] == [False, True]

    play(story)


def test_what_comes_at_once_is_shared_among_those_who_wait_by_what_each_holds():
    async def story(work, jobs, waits):
        waits.loads.update({ONE: (0, 8), TWO: (0, 8), THREE: (6, 8)})
        calls = [waits(server, "script") for server in (ONE, TWO, THREE)]
        await looked(work, jobs)
        jobs.add("script", jobs=8)
        await looked(work, jobs, 5)
        assert [call.done() and call.result() for call in calls] == [4, 4, False]

    play(story)


def test_one_who_waits_alone_is_woken_for_all_that_it_has_room_for():
    async def story(work, jobs, waits):
        waits.loads[ONE] = (2, 8)
        jobs.add("script", jobs=50)
        assert await waits(ONE, "script") == 6

    play(story)


def test_some_jobs_that_come_together_are_left_briefly_to_idle_workers_elsewhere(monkeypatch):
    monkeypatch.setattr(hints, "BETTER_FIRST", LONG)

    async def story(work, jobs, waits):
        waits.loads.update({ONE: (0, 8), TWO: (0, 8)})
        waits.loads.elsewhere = [(TWO, ["script"])]
        jobs.add("script", jobs=8)
        assert await waits(ONE, "script") == 5
        waits.loads[ONE] = (5, 8)
        del jobs[0].jobs[:5]
        back = waits(ONE, "script")
        await looked(work, jobs, 5)
        assert not back.done()
        monkeypatch.setattr(hints, "BETTER_FIRST", 0.0)  # no worker there took them
        work._wanted.set()
        assert await back == 3

    play(story)


def test_who_is_back_with_its_share_is_not_woken_for_that_of_one_who_still_claims(monkeypatch):
    async def story(work, jobs, waits):
        waits.loads.update({ONE: (0, 8), TWO: (0, 8)})
        calls = [waits(server, "script") for server in (ONE, TWO)]
        await looked(work, jobs)
        jobs.add("script", jobs=4)
        work._wanted.set()
        assert await asyncio.gather(*calls) == [2, 2]
        del jobs[0].jobs[:2]  # one worker has the second
        waits.loads[ONE] = (2, 8)
        back = waits(ONE, "script")
        await looked(work, jobs, 5)
        assert not back.done()
        monkeypatch.setattr(hints, "CLAIMED_WITHIN", 0.0)  # the other does not claim
        work._wanted.set()
        assert await back == 2

    play(story)


def test_who_was_woken_for_several_jobs_and_claimed_one_is_woken_again_at_once():
    async def story(work, jobs, waits):
        waits.loads[ONE] = (0, 4)
        jobs.add("script", jobs=2)
        assert await waits(ONE, "script")
        jobs[0].jobs.pop()
        assert await waits(ONE, "script")

    play(story)


def test_a_worker_that_returns_without_its_job_lets_all_others_try_first():
    async def story(work, jobs, waits):
        waits.loads.update({ONE: (0, 4), TWO: (2, 4), THREE: (3, 4)})
        calls = {server: waits(server, "script") for server in (ONE, TWO, THREE)}
        await looked(work, jobs)
        jobs.add("script")
        order = []
        for _ in range(6):
            await looked(work, jobs, 5)
            [woken] = [server for server, call in calls.items() if call.done()]
            order.append(woken)
            calls[woken] = waits(woken, "script")
        assert order == [ONE, TWO, THREE] * 2

    play(story)


def test_who_is_full_or_may_get_no_work_is_not_woken():
    async def story(work, jobs, waits):
        waits.loads[ONE] = (1, 1)
        calls = [waits(server, "script") for server in (ONE, TWO)]
        await looked(work, jobs)
        jobs.add("script", jobs=2)
        await looked(work, jobs, 5)
        assert [call.done() for call in calls] == [False, True]

    play(story)


def test_a_new_job_is_left_briefly_to_a_clearly_less_loaded_worker_elsewhere(monkeypatch):
    monkeypatch.setattr(hints, "BETTER_FIRST", LONG)

    async def story(work, jobs, waits):
        waits.loads[ONE] = (2, 4)
        waits.loads.elsewhere = [(TWO, ["script"])]
        call = waits(ONE, "script")
        await looked(work, jobs)
        jobs.add("script")
        await looked(work, jobs, 5)
        assert not call.done()
        monkeypatch.setattr(hints, "BETTER_FIRST", 0.0)  # no worker there took it
        work._wanted.set()
        assert await call

    play(story)


@pytest.mark.parametrize(("load", "tag"), [((1, 4), "script"), ((3, 4), "python")], ids=["little", "tag"])
def test_no_job_is_left_to_a_worker_elsewhere_with_similar_load_or_without_its_tag(monkeypatch, load, tag):
    monkeypatch.setattr(hints, "BETTER_FIRST", LONG)

    async def story(work, jobs, waits):
        waits.loads[ONE] = load
        waits.loads.elsewhere = [(TWO, [tag])]
        jobs.add("script")
        assert await waits(ONE, "script")

    play(story)


def test_a_new_job_that_was_left_to_others_is_looked_at_again_by_itself(monkeypatch):
    monkeypatch.setattr(hints, "BETTER_FIRST", 0.01)
    monkeypatch.setattr(hints, "LOOK_INTERVAL", LONG)

    async def story(work, jobs, waits):
        waits.loads[ONE] = (3, 4)
        waits.loads.elsewhere = [(TWO, ["script"])]
        jobs.add("script")
        assert await waits(ONE, "script")

    play(story)


def test_the_next_job_wakes_the_next_worker_at_once_right_after_the_first_job():
    async def story(work, jobs, waits):
        calls = [waits(server, "script") for server in (ONE, TWO, THREE)]
        await looked(work, jobs)
        for number, call in enumerate(calls):
            jobs.clear()  # the one before was claimed
            jobs.add("script")
            work._wanted.set()
            assert await call
            assert [one.done() for one in calls] == [place <= number for place in range(3)]

    play(story)


def test_who_lacks_a_tag_or_has_refused_the_job_is_not_woken():
    async def story(work, jobs, waits):
        calls = [waits(ONE, "python"), waits(TWO, "script"), waits(THREE, "script", "gpu")]
        await looked(work, jobs)
        jobs.add("script", refused_by=[TWO])
        jobs.add("tpu", jobs=100)
        await looked(work, jobs)
        assert [call.done() for call in calls] == [False, False, True]

    play(story)


def test_where_those_who_were_woken_do_not_claim_others_are(monkeypatch):
    monkeypatch.setattr(hints, "CLAIMED_WITHIN", 0.01)

    async def story(work, jobs, waits):
        calls = [waits(server, "script") for server in (ONE, TWO)]
        jobs.add("script")
        assert await asyncio.gather(*calls) == [1, 1]

    play(story)


def test_what_nobody_announces_is_seen_all_the_same(monkeypatch):
    monkeypatch.setattr(hints, "LOOK_INTERVAL", 0.01)

    async def story(work, jobs, waits):
        call = waits(ONE, "script")
        await looked(work, jobs)
        jobs.add("script")
        assert await call

    play(story)


def test_while_nobody_waits_nobody_looks(monkeypatch):
    monkeypatch.setattr(hints, "LOOK_INTERVAL", 0.001)

    async def story(work, jobs, waits):
        assert await waits(ONE, seconds=0.01) == 0
        await asyncio.sleep(0.02)
        looks = jobs.looks
        await asyncio.sleep(0.02)
        assert jobs.looks == looks

    play(story)


def test_nobody_looks_for_one_who_comes_right_after_a_look_that_found_nothing_for_it(monkeypatch):
    monkeypatch.setattr(hints, "LOOK_INTERVAL", LONG)

    async def story(work, jobs, waits):
        jobs.add("gpu")
        waits(ONE, "script")
        await until(lambda: jobs.looks)
        await calm(work)
        looks = jobs.looks
        calls = [waits(TWO, "script"), waits(ONE, "script")]
        await asyncio.sleep(0)
        await calm(work)
        assert jobs.looks == looks
        assert await waits(THREE, "gpu") == 1, "it found something for this one"
        assert not calls[0].done()

    play(story)


@pytest.mark.parametrize("hears", [True, False])
def test_one_who_comes_after_an_announcement_that_nobody_waited_for_is_looked_for(monkeypatch, hears):
    monkeypatch.setattr(hints, "LOOK_INTERVAL", LONG if hears else 0.0)

    async def story(work, jobs, waits):
        assert await waits(ONE, "script", seconds=0.05) == 0
        await calm(work)
        jobs.add("script")
        if hears:
            work._wanted.set()
            await calm(work)
        assert await waits(TWO, "script") == 1

    play(story)


def test_one_who_comes_in_the_middle_of_a_look_is_looked_for(monkeypatch):
    monkeypatch.setattr(hints, "LOOK_INTERVAL", LONG)

    async def story(work, jobs, waits):
        ends, begun = threading.Event(), threading.Event()
        look = work._look
        work._look = lambda most, offers: (look(most, offers), begun.set(), ends.wait(LONG))[0]
        waits(ONE, "gpu")
        await until(begun.is_set)
        jobs.add("script")
        call = waits(TWO, "script")
        await asyncio.sleep(0)
        ends.set()
        assert await call == 1

    play(story)


def test_a_database_that_does_not_answer_is_asked_again(monkeypatch):
    monkeypatch.setattr(hints, "LOOK_INTERVAL", 0.001)
    from django.db import OperationalError

    async def story(work, jobs, waits):
        answers = [OperationalError("down"), [ClaimableJobs("default", ["script"], [], [uuid.uuid4()], 1)]]

        def look(most, offers):
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        work._look = look
        assert await waits(ONE, "script")

    play(story)


def test_a_server_waits_once_and_who_has_gone_is_not_woken():
    async def story(work, jobs, waits):
        async def gone():
            return None

        first = waits(ONE, "script")
        await looked(work, jobs)
        second = waits(ONE, "script")
        assert await first == 0
        assert await waits(TWO, "script", gone=gone) is None
        jobs.add("script")
        assert await second

    play(story)


def test_beyond_the_limit_and_once_the_process_ends_nobody_waits(monkeypatch):
    monkeypatch.setattr(hints, "WAITING", 1)

    async def story(work, jobs, waits):
        first = waits(ONE, "script")
        await looked(work, jobs)
        assert await waits(TWO, "script") == 0
        work.close()
        assert await first == 0
        assert await waits(ONE, "script") == 0

    play(story)


def test_the_offers_of_the_servers_that_called_last_are_known(monkeypatch):
    monkeypatch.setattr(hints, "REMEMBERED", 1)
    work = WorkHints(Jobs())
    assert work.learn_offer("a", b"1", "red", ["script"]) == work.offer_of("a", b"1") == ("red", {"script"})
    work.learn_offer("b", b"1", "red", [])
    assert work.offer_of("a", b"1") is None and work.offer_of("b", b"1") == ("red", frozenset())


def test_one_server_fills_one_entry_whatever_headers_it_sends():
    work = WorkHints(Jobs())
    for number in range(100):
        work.learn_offer("a", b"%d" % number, "red", [])
    assert len(work._offers) == 1
    assert work.offer_of("a", b"98") is None, "Django judges other headers"


def test_a_worker_whose_tags_have_changed_is_asked_to_call_again():
    async def story(work, jobs, waits):
        work.learn_offer(ONE, b"credential", "default", ["gpu"])
        call, other = waits(ONE, "gpu"), waits(TWO, "gpu")
        await until(lambda: len(work._waiting) == 2)
        await calm(work)
        note = work._listener.on_notification
        note(f"offer {ONE}")
        assert await asyncio.wait_for(call, LONG) == 0
        assert work.offer_of(ONE, b"credential") is None and not other.done()
        note("earlier")
        note("")

    play(story)
