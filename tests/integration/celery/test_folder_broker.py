"""The folder that carries Celery's messages in the embedded shape."""

from concurrent.futures import ThreadPoolExecutor
from queue import Empty

import pytest
from kombu import Connection
from kombu.transport import filesystem, resolve_transport

from controlplane.embedded import folder_broker

MESSAGES = 2000


def channel(kind, folder):
    options = {"data_folder_in": str(folder), "data_folder_out": str(folder), "control_folder": str(folder / "c")}
    connection = Connection(transport=kind, transport_options=options)
    return connection.channel()


def drained(consumer, wanted):
    numbers = []
    while len(numbers) < wanted:
        try:
            numbers.append(consumer._get("q")["n"])
        except Empty:
            continue
    return numbers


def test_no_consumer_ever_sees_half_a_message_and_each_is_taken_once_in_order(tmp_path):
    producer, consumer = (channel(folder_broker.Transport, tmp_path) for _ in range(2))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: [producer._put("q", {"n": n, "body": "x" * 2000}) for n in range(MESSAGES)])
        numbers = drained(consumer, MESSAGES)
    assert numbers == list(range(MESSAGES))
    assert not list(tmp_path.glob("*.msg")) + list(tmp_path.glob(".*.msg"))


def test_filesystem_means_this_transport():
    folder_broker.install_transport()
    assert resolve_transport("filesystem") is folder_broker.Transport
    assert issubclass(folder_broker.Transport, filesystem.Transport)


@pytest.mark.parametrize("queue", ["other", "q.more", "prefix.q"])
def test_a_queue_gets_its_own_messages_only(tmp_path, queue):
    one = channel(folder_broker.Transport, tmp_path)
    one._put(queue, {"n": 1})
    with pytest.raises(Empty):
        one._get("q")
