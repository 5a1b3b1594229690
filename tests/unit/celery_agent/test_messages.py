"""Messages on the pipes between a worker and its heart."""

from __future__ import annotations

import pytest
from kombu import Connection

from controlplane.agent.celery import messages
from controlplane.agent.celery.messages import (
    MOST,
    SHORTENED,
    TYPES,
    Greeting,
    Revoke,
    TaskEnded,
    TaskHeld,
    decode,
    decode_greeting,
    encode,
    encode_greeting,
)

VALUES = {"float": 1.5, "int": 7, "bool": True, "list": ["a"], "dict": {"a": 1}, "Sequence": ["a"]}


def example(kind):
    """Return a message of a type with a value in each field."""
    annotations = {name: str(getattr(hint, "__forward_arg__", hint)) for name, hint in kind.__annotations__.items()}
    values = [next((VALUES[name] for name in VALUES if hint.startswith(name)), "text") for hint in annotations.values()]
    return kind(*values)


@pytest.mark.parametrize("name", TYPES)
def test_each_message_is_decoded_as_it_was_encoded(name):
    message = example(TYPES[name])
    line = encode(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode(line) == message and type(decode(line)) is type(message)


def test_a_message_that_is_too_long_for_the_pipe_is_shortened():
    end = TaskEnded("tag", "FAILED", 1.0, "E: " + "é" * 500, "t" * 2000)
    assert len(encode(end)) > MOST
    line = encode(end, MOST)
    assert len(line) <= MOST
    assert decode(line) == end._replace(text=end.text[:SHORTENED], traceback=end.traceback[:SHORTENED])


def test_a_message_just_within_the_limit_is_not_shortened():
    held = TaskHeld("tag", "id", "n", "q")
    rest = len(encode(held))
    exact = held._replace(name="n" * (MOST - rest + 1))
    assert len(encode(exact, MOST)) == MOST and decode(encode(exact, MOST)) == exact
    above = exact._replace(name=exact.name + "n")
    assert decode(encode(above, MOST)).name == "n" * SHORTENED


@pytest.mark.parametrize("line", [b"nothing", b'["Unknown"]', b'["Revoke"]', b"[]"])
def test_a_line_that_is_no_message_is_an_error(line):
    with pytest.raises((ValueError, KeyError, TypeError)):
        decode(line)


def test_a_revocation_sends_sigterm_unless_another_signal_is_given():
    assert decode(encode(Revoke("a"))).signal == "TERM"


def test_a_greeting_carries_the_connection_to_the_broker():
    greeting = Greeting(
        instance="me", kind="redis", connection=Connection("redis://:secret@host:6379/1"), exchanges={"post": "direct"},
        visibility_timeout=None, broker_heartbeat=10, url="http://plane", token="t", name="w@host", own_queue=None,
        folder=None, every=3.0, record="notable", max_resubmissions=3, condemned_for=2.0, stuck_after=60.0,
        when_stuck="flag", description={"type": "WORKER"},
    )  # fmt: skip
    decoded = decode_greeting(encode_greeting(greeting))
    assert decoded.connection.as_uri(include_password=True) == "redis://:secret@host:6379/1"
    assert {**vars(decoded), "connection": None} == {**vars(greeting), "connection": None}


def test_messages_have_unique_names():
    kinds = [*messages.FromWorker.__args__, *messages.Order.__args__]
    assert len(TYPES) == len(kinds)
