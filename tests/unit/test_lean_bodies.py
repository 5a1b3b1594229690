"""Readers derived from a serializer return the same as the serializer."""

import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rest_framework import serializers
from rest_framework.exceptions import ParseError

from controlplane.core import lean_bodies, rest
from controlplane.core.media_types import JSONParser
from controlplane.core.rest import (
    StrictSerializer,
    TextField,
    WholeField,
    validate_body,
)
from jobs.api.serializers.executions import JobList, SubmissionRequest
from jobs.api.serializers.open_executions import ExecutionRequest
from jobs.api.serializers.reports import ReportItem, ReportsRequest
from jobs.api.serializers.workers import ClaimRequest, HeartbeatRequest
from jobs.models import LogLine
from liveness.api.serializers.registration import RegistrationRequest

ATTEMPT = "01890000-0000-7000-8000-000000000000"
SCRIPT = {"type": "script", "command": "true"}
STEP = {"key": "a", "action": SCRIPT}
PLAIN = [
    (ClaimRequest, {}),
    (ClaimRequest, {"limit": 100, "request_id": ATTEMPT}),
    (HeartbeatRequest, {"state": "RUNNING", "claimed": [ATTEMPT], "running": [{"attempt": ATTEMPT, "pid": 1}]}),
    (RegistrationRequest, {"type": "WORKER", "name": "w", "instance_id": ATTEMPT, "tags": ["b", "a"], "pid": None}),
    *(
        (ReportsRequest, {"reports": [{"attempt": ATTEMPT, **report}]})
        for report in (
            {"event": "STARTED", "traceparent": f"00-{'1' * 32}-{'2' * 16}-01"},
            {"event": "PROGRESS", "progress": 1, "message": ""},
            {"event": "CHECKPOINT", "value": None},
            {"event": "COMPLETED", "output": {"a": [1]}},
            {"event": "FAILED", "error": {"code": "E", "message": "naïve\nwas", "traceback": ""}},
            {"event": "CANCELLED"},
            {"event": "RELEASED", "reason": "drained"},
            {"event": "LOG", "stream": LogLine.Stream.values[0], "lines": ["", "Straße"], "sequence": 1},
        )
    ),
    *(
        (SubmissionRequest, {"payload": {"n": 1}, **job})
        for job in (
            {"action": {**SCRIPT, "runner": "docker", "image": "alpine:3", "env": {"A": "1"}, "cwd": "/"}},
            {"action": {"type": "callable", "path": "package.module:function"}, "tags": ["b", "a", "b"]},
            {"action": {"type": "handler", "name": "send"}, "priority": -1, "max_retries": 1000, "key": "k"},
            {"action": {"type": "celery", "task": "t", "args": [1], "kwargs": {}}, "payload": None, "name": "n"},
            {"action": {"type": "pod", "image": "i", "command": ["a"]}, "timeout_seconds": 1, "good_until": None},
            {"action": SCRIPT, "on_worker_lost": "FAIL", "unmatched": "wait", "retry_on": None, "require_worker": True},
            {"action": {"type": "execution", "name": "x", "steps": [STEP]}},
        )
    ),
    (JobList, [{"action": SCRIPT, "available_at": "2026-01-01T00:00:00Z"}] * 2),
    (ExecutionRequest, {"name": "x", "steps": [STEP, {**STEP, "key": "b", "depends_on": ["a"]}], "on_error": []}),
]


def lean(serializer, body):
    """Return the value of the reader as a tuple, or None if the serializer must decide."""
    try:
        return (lean_bodies.reader_of(serializer)(body),)
    except lean_bodies.REFUSALS:
        return None


def long(serializer, body):
    try:
        return (rest.shared_serializer(serializer).run_validation(body),)
    except serializers.ValidationError:
        return None


def typed(value):
    """Return the value with all types in it: true is not 1, and 1 is not 1.0."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)


@pytest.mark.parametrize(("serializer", "body"), PLAIN, ids=str)
def test_bodies_of_agents_and_clients_are_read_as_the_serializer_reads_them(serializer, body):
    read, expected = lean(serializer, body), long(serializer, body)
    assert expected is not None
    assert read is not None
    assert typed(read[0]) == typed(expected[0])


texts = st.text(st.sampled_from([*string.printable, "\0", "\x7f", "\x85", "ü", "𝕏", "\u2028"]), max_size=5)
junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)  # JSON has neither
    | st.sampled_from([10**30, 2**31, 1000, 1001, 0.001, "", " ", "x" * 256, "1", ATTEMPT, "STARTED", [ATTEMPT]])
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.sampled_from(["type", "key"]), inner),
    max_leaves=5,
)


def places(value, path=()):
    """Yield the path of every part of a body."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in parts:
        yield from places(item, (*path, name))


def changed(value, path, other):
    """Return the body with another part at that path, or without it if `other` is None."""
    if not path:
        return other[0] if other else {}
    copy = value.copy()
    if len(path) > 1:
        copy[path[0]] = changed(value[path[0]], path[1:], other)
    elif other:
        copy[path[0]] = other[0]
    else:
        del copy[path[0]]
    return copy


def names(serializer):
    return list(serializer().fields) if issubclass(serializer, StrictSerializer) else []


@st.composite
def nearly_plain(draw):
    serializer, body = draw(st.sampled_from(PLAIN))
    for _ in range(draw(st.integers(1, 3))):
        body = changed(body, draw(st.sampled_from(list(places(body)))), draw(st.none() | st.tuples(junk)))
    if isinstance(body, dict) and (known := names(serializer)) and draw(st.booleans()):
        body = {**body, draw(st.sampled_from([*known, "unknown"])): draw(junk)}
    return serializer, body


@settings(max_examples=600, deadline=None)
@given(nearly_plain())
@example((ClaimRequest, {"limit": True}))
@example((ClaimRequest, {"limit": 1.0}))
@example((ReportItem, {"attempt": ATTEMPT, "event": "STARTED", "progress": 10**400}))
@example((SubmissionRequest, {"action": {**SCRIPT, "command": None}}))
@example((SubmissionRequest, {"action": {"type": ["script"]}}))
@example((SubmissionRequest, {"action": SCRIPT, "tags": [str(n) for n in range(201)]}))
@example((ExecutionRequest, {"name": "x", "steps": 1}))
def test_what_is_read_leanly_the_serializer_accepts_with_the_same_value(case):
    serializer, body = case
    if (read := lean(serializer, body)) is not None:
        expected = long(serializer, body)
        assert expected is not None
        assert repr(typed(read[0])) == repr(typed(expected[0])) or typed(read[0]) == typed(expected[0])


def test_a_field_that_is_not_known_is_asked_itself():
    class Loud(TextField):
        def to_internal_value(self, data):
            return super().to_internal_value(data).upper()

    class Odd(WholeField):
        def run_validation(self, data=serializers.empty):
            return -1

    class Body(StrictSerializer):
        text = Loud()
        number = Odd()
        nested = serializers.DictField(required=False)

        def validate_text(self, text):
            return f"{text}!"

    assert lean_bodies.reader_of(Body)({"text": "a", "number": 1, "nested": {}}) == {
        "text": "A!",
        "number": -1,
        "nested": {},
    }
    with pytest.raises(serializers.ValidationError):
        validate_body(Body, {"text": 1, "number": 1})


@pytest.mark.parametrize("levels", [100, 101])
def test_how_deep_a_body_may_be_does_not_depend_on_what_is_beside(levels):
    from io import BytesIO

    body = b'[{"a":' + b"[" * (levels - 2) + b"1" + b"]" * (levels - 2) + b"}" + b',"]"' * 200 + b"]"
    if levels == 100:
        assert JSONParser().parse(BytesIO(body))
    else:
        with pytest.raises(ParseError, match="more than 100 levels"):
            JSONParser().parse(BytesIO(body))
