"""Bodies and answers of slow, numerous or disconnected clients; the loop runs step by step."""

import asyncio

import pytest

from controlplane.agent.limits import BODY_LIMIT
from controlplane.serving import bodies, sending
from controlplane.serving.answers import Answer
from controlplane.serving.bodies import AT_ONCE_OF_ONE, READ_AND_DROPPED, Bodies, BodyTooSlow
from controlplane.serving.front import refusal
from controlplane.serving.request import Request
from controlplane.serving.sending import CHUNK, AnswersUnread, Sender
from controlplane.serving.transfers import Transfer, Transfers
from tests.support.http import http_scope

GONE = {"type": "http.disconnect"}


def chunk(body, *, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


class Client:
    """Client whose messages arrive when the test sends them."""

    def __init__(self, method="POST", path="/api/v1/jobs", address="192.0.2.1"):
        self.messages = asyncio.Queue()
        self.request = Request(http_scope(method, path, client=(address, "5000")), self.messages.get)

    def send(self, *messages):
        for message in messages:
            self.messages.put_nowait(message)
        return self

    def task(self, reader):
        return asyncio.create_task(reader.read(self.request))


async def steps():
    for _ in range(5):
        await asyncio.sleep(0)


def read(*messages, **how):
    async def run():
        return await Bodies().read(Client(**how).send(*messages).request)

    return asyncio.run(run())


def test_a_body_is_read_as_a_whole():
    assert read(chunk(b"ab"), chunk(b"cd"), chunk(b"", more=False)) == b"abcd"
    assert read(chunk(b"ab", more=False)) == b"ab"


@pytest.mark.parametrize("messages", [[GONE], [chunk(b"ab"), GONE]])
def test_a_body_that_was_cut_is_no_body(messages):
    assert read(*messages) is None


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/v1/jobs"), ("HEAD", "/"), ("OPTIONS", "/"), ("POST", "/livez"), ("PUT", "/readyz")],
)
def test_no_body_is_read_of_a_get_or_a_probe(method, path):
    assert read(method=method, path=path) == b""


def test_a_body_that_is_too_large_is_kept_only_as_far_as_django_needs_to_refuse_it():
    large = [chunk(b"x" * BODY_LIMIT)] * (READ_AND_DROPPED // BODY_LIMIT + 2)
    assert len(read(*large)) == BODY_LIMIT + 1
    assert len(read(chunk(b"x" * BODY_LIMIT), chunk(b"", more=False))) == BODY_LIMIT


def test_a_body_that_stops_arriving_is_refused(monkeypatch):
    monkeypatch.setattr(bodies, "GRACE", 0.01)
    with pytest.raises(BodyTooSlow) as refused:
        read(chunk(b"ab"))
    answer = refusal(refused.value)
    assert (answer.status, dict(answer.headers)["Content-Type"]) == (408, "application/problem+json")


def test_when_one_address_sends_too_many_the_slowest_is_refused_and_not_the_newcomer():
    async def run():
        reader = Bodies()
        slow = [Client().send(chunk(b"{")) for _ in range(AT_ONCE_OF_ONE)]
        tasks = [client.task(reader) for client in slow]
        await steps()
        slow[0].send(chunk(b"x" * 1000))
        await steps()
        newcomer = Client().send(chunk(b"{}"))
        tasks.append(newcomer.task(reader))
        await steps()
        with pytest.raises(BodyTooSlow):
            await tasks[1]
        for client in (slow[0], slow[2], newcomer):
            client.send(chunk(b"", more=False))
        assert [len(await tasks[place]) for place in (0, 2, -1)] == [1001, 1, 2]
        for task in tasks:
            task.cancel()

    asyncio.run(run())


def test_bytes_of_unfinished_bodies_are_limited_and_counted_back(monkeypatch):
    monkeypatch.setattr(bodies, "BYTES_OF_ONE", 1000)
    monkeypatch.setattr(bodies, "BYTES", 1500)

    async def run():
        reader = Bodies()
        clients = [Client(address=address) for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3")]
        tasks = [client.task(reader) for client in clients]
        for client, size in zip(clients, (500, 600, 700, 800), strict=True):
            client.send(chunk(b"x" * size))
            await steps()
        assert [task.done() for task in tasks] == [True, True, False, False], "1,100 of one address, 2,100 of all"
        for client in clients:
            client.send(chunk(b"y", more=False))
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ends] == [BodyTooSlow, BodyTooSlow, bytes, bytes]
        assert reader._all.held == len(reader._all) == 0 and not reader._of

    asyncio.run(run())


def test_each_byte_earns_a_transfer_time_but_no_pause_may_be_longer_than_its_grace():
    async def run():
        async with asyncio.timeout(5) as timeout:
            transfer = Transfer(timeout, grace=5, rate=1000)
            began = transfer.deadline - 5
            transfer.move(1000)
            assert transfer.deadline == pytest.approx(began + 5, abs=0.05), "five seconds from now at the most"
            transfers = Transfers(1, 100)
            transfers.add(transfer, 60)
            transfers.add(later := Transfer(timeout, grace=50, rate=1000), 10)
            assert len(transfers) == 1 and transfers.held == 10
            transfers.remove(later)
            transfers.remove(transfer)
            assert transfers.held == 0
            timeout.reschedule(None)

    asyncio.run(run())


class Reader:
    """Client that reads answers as far as the test lets it."""

    def __init__(self, reads=True):
        self.messages, self.may_read = [], asyncio.Event()
        if reads:
            self.may_read.set()

    async def send(self, message):
        self.messages.append(message)
        if message["type"] == "http.response.body":
            await self.may_read.wait()

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.messages)


LARGE = Answer(200, [("Content-Type", "application/json")], b"x" * (3 * CHUNK))


def test_a_large_answer_is_sent_in_pieces_with_its_length():
    async def run():
        reader = Reader()
        await Sender().send("client", LARGE, reader.send)
        return reader

    reader = asyncio.run(run())
    assert reader.body == LARGE.body and len(reader.messages) == 4
    assert (b"content-length", b"%d" % len(LARGE.body)) in reader.messages[0]["headers"]


def test_a_file_is_sent_from_its_path():
    async def run():
        reader = Reader()
        await Sender().send("client", Answer(200, [("Content-Length", "5")], b"", "/a/file"), reader.send)
        return reader.messages[1]

    assert asyncio.run(run()) == {"type": "http.response.pathsend", "path": "/a/file"}


def test_an_answer_that_nobody_reads_is_given_up(monkeypatch):
    monkeypatch.setattr(sending, "GRACE", 0.01)

    async def run():
        reader, sender = Reader(reads=False), Sender()
        await sender.send("client", LARGE, reader.send)
        assert reader.messages[-1]["more_body"], "granian closes the connection of an answer that is not complete"
        assert not sender._unread_by and sender._transfers.held == 0

    asyncio.run(run())


def test_a_caller_that_reads_no_answers_waits_for_its_next_and_others_do_not(monkeypatch):
    monkeypatch.setattr(sending, "UNREAD_OF_ONE", len(LARGE.body))

    async def run():
        sender, reader = Sender(), Reader(reads=False)
        first = asyncio.create_task(sender.send("client", LARGE, reader.send))
        await steps()
        await sender.wait_for_reader("other")
        second = asyncio.create_task(sender.wait_for_reader("client"))
        await steps()
        assert not second.done()
        reader.may_read.set()
        await asyncio.gather(first, second)

    asyncio.run(run())


def test_a_caller_that_reads_nothing_for_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(sending, "UNREAD_OF_ONE", 1)
    monkeypatch.setattr(sending, "WAIT", 0.01)

    async def run():
        sender, reader = Sender(), Reader(reads=False)
        task = asyncio.create_task(sender.send("client", LARGE, reader.send))
        await steps()
        with pytest.raises(AnswersUnread):
            await sender.wait_for_reader("client")
        task.cancel()

    asyncio.run(run())


def test_when_too_much_is_unread_the_slowest_reader_is_cut_off_and_not_the_newcomer(monkeypatch):
    monkeypatch.setattr(sending, "UNREAD", 2 * len(LARGE.body))

    async def run():
        sender = Sender()
        readers = [Reader(reads=False) for _ in range(3)]
        tasks = [
            asyncio.create_task(sender.send(f"client {place}", LARGE, reader.send))
            for place, reader in enumerate(readers)
        ]
        for _ in range(4):
            await steps()
        await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        assert [task.done() for task in tasks] == [True, False, False]
        for task in tasks:
            task.cancel()

    asyncio.run(run())
