"""Every page, every call and `/metrics` still respond when all fields have extreme values.

The extremes of each field come from its serializer, so a field that is added is tried too.
"""

import json
import math
import re
import secrets
import uuid
from datetime import datetime

import pytest
from django.db import connection, transaction
from rest_framework import serializers

from controlplane.core.bounds import EARLIEST, LATEST, clamp_moment, clamp_number, moment_after
from controlplane.core.rest import AnyField, ObjectField, StrictSerializer, TimeField
from jobs.api.serializers.celery_tasks import TaskItem, TaskSums
from jobs.api.serializers.executions import SubmissionRequest
from jobs.api.serializers.open_executions import ExecutionRequest
from jobs.api.serializers.reports import ReportItem
from jobs.api.serializers.triggers import TriggerRequest
from jobs.api.serializers.workers import HeartbeatRequest
from jobs.models import Execution, Trigger, WorkerJob
from jobs.services import alerts, evaluations, liveness_check, sweep
from liveness.api.serializers.operations import CordonRequest, DrainRequest, EnterRequest
from liveness.api.serializers.registration import Config, RegistrationRequest
from liveness.models import Server
from tests.integration.api.test_access import LINES, Things
from tests.integration.api.test_clean_text import serializers_of
from tests.support.executions import SCRIPT, step

pytestmark = pytest.mark.django_db

MOMENTS = ["0001-01-01T00:00:00Z", "1582-10-10T00:00:00Z", "9999-12-31T23:59:59.999999Z", "3000-01-01T00:00:00+14:00"]
NUMBERS = [1e308, -1e308, 5e-324, 2**63, 10**300]
ANYTHING = [NUMBERS, "x" * 10_000, {"": None, "k" * 300: NUMBERS}, [[[[{}]]]], False, 0]


EVERYWHERE = r"instance/$|v1/instance$|activity|metrics"
"""Addresses of pages that show rows of all tables."""


def extremes_of(field):
    """Return values at the bounds of a field, as JSON."""
    if isinstance(field, TimeField):
        return MOMENTS
    if isinstance(field, ObjectField):
        return [{}, {"cpu_percent": 1e308, "memory_percent": -1e308, "n": 10**300, "t": "x" * 5000}, {"k" * 200: [[1]]}]
    if isinstance(field, AnyField):
        return ANYTHING
    if isinstance(field, serializers.ChoiceField):
        return list(field.choices)
    if isinstance(field, serializers.IntegerField | serializers.FloatField):
        return [field.min_value, field.max_value]
    if isinstance(field, serializers.CharField) and not isinstance(field, serializers.RegexField):
        most = field.max_length or 50_000
        return ["x" * most, "\N{COLLISION SYMBOL}" * most]
    if isinstance(field, serializers.ListField) and not isinstance(field.child, serializers.Serializer):
        most = getattr(field.child, "max_length", None)
        many = [secrets.token_hex(most)[:most] for _ in range(field.max_length or 50)] if most else None
        return [*([many] if many else []), *([value] for value in extremes_of(field.child))]
    return []


def bodies(serializer, base, each=False):
    """Yield bodies with all fields at their extremes, and with `each` also with single fields at each extreme."""
    fields = {name: extremes_of(field) for name, field in serializer().fields.items() if name not in ("type", "action")}
    yield base
    for name, values in fields.items() if each else ():
        yield from ({**base, name: value} for value in values)
    for place in (0, -1):
        yield {**base, **{name: values[place] for name, values in fields.items() if values and name not in base}}


class Everybody:
    """Callers of all roles. They record each response with a 5xx status."""

    def __init__(self, api, worker, submit):
        self.things = Things(api, worker, submit)
        self.operator, self.registrar, self.client = api("operator"), api("worker"), submit.client
        self.faults, self.taken = [], 0

    def say(self, caller, path, body):
        answer = caller.post(path, body)
        self.taken += answer.status_code in (200, 201)
        if answer.status_code >= 500:
            self.faults.append((path, str(body)[:200], answer.status_code))
        return answer

    def look(self, about=""):
        """Read every page, every call and the metrics for each row, or for rows that match `about`."""
        ids = {
            "<uuid:server>": Server.objects.values_list("pk", flat=True),
            "<uuid:job>": WorkerJob.objects.values_list("pk", flat=True),
            "<uuid:execution>": Execution.objects.values_list("pk", flat=True),
            "<uuid:trigger>": Trigger.objects.values_list("pk", flat=True),
        }
        for line in LINES:
            if not {"GET", "any"} & line.methods or re.search(r"logout|healthz|\^|password|/history/$", line.address):
                continue
            if not re.search(about, line.address):
                continue
            hole = next((hole for hole in ids if hole in line.address), None)
            model = line.address.split("/")[2] if line.address.endswith("<path:object_id>/change/") else ""
            model = {"server": "<uuid:server>", "workerjob": "<uuid:job>", "trigger": "<uuid:trigger>"}.get(model)
            if hole or model:
                paths = [
                    self.things.path(line.address.replace(hole or "<path:object_id>", str(id)))
                    for id in ids[hole or model][:20]
                ]
            else:
                paths = [self.things.path(line.address)]
            for path in paths:
                identity = {"session": self.things.root}
                if path.startswith(("/api/", "/metrics")):
                    own = "itself" if line.who == "itself" else "operator"
                    identity = {"bearer": self.things.bearers[own]}
                try:
                    self.things.answer("GET", path, **identity)
                except Exception as error:
                    self.faults.append((path, repr(error)[:200]))


@pytest.fixture
def everybody(api, worker, submit):
    return Everybody(api, worker, submit)


def go_on():
    """Run everything that the executor runs regularly."""
    evaluations.evaluate_due_triggers()
    liveness_check.check_liveness()
    sweep.run_sweep()
    alerts.run_alerts()


@pytest.mark.parametrize("each", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_everything_at_its_extremes_makes_nothing_a_fault(everybody, worker, celery_worker, clock, each):
    say, execution = everybody.say, {"name": "e", "steps": [step("a")]}
    registration = {"type": "WORKER", "name": "n", "tags": ["script", "x"], "max_concurrent": 10}
    for config in [None, *bodies(Config, {}, each)]:
        body = {**registration, **({"config": config} if config else {}), "instance_id": str(uuid.uuid4())}
        say(everybody.registrar, "/servers", body)
    for body in bodies(RegistrationRequest, registration, each):
        say(everybody.registrar, "/servers", {**body, "instance_id": str(uuid.uuid4())})
    for body in bodies(SubmissionRequest, {"action": SCRIPT}, each):
        say(everybody.client, "/jobs", body)
    for body in bodies(ExecutionRequest, execution, each):
        say(everybody.client, "/executions", body)
    for body in bodies(SubmissionRequest, {"action": SCRIPT, "key": "k"}, each):
        say(everybody.client, "/executions", {**execution, "steps": [body]})
    for place, body in enumerate(bodies(TriggerRequest, {"action": SCRIPT, "execution": execution}, each)):
        schedule = {} if {"cron", "interval_seconds"} & body.keys() else {"interval_seconds": 1}
        say(everybody.operator, "/triggers", {"name": f"t{place}", **schedule, **body})
    one = worker(tags=["script", "x"], max_concurrent=1000)
    for body in bodies(HeartbeatRequest, {"state": "RUNNING"}, each):
        if body["state"] in ("CREATED", "RUNNING"):
            say(one, f"/servers/{one.id}/heartbeat", body)
    for attempt in one.claim(limit=40 if each else 4):
        one.start(attempt)
        for event in ("PROGRESS", "CHECKPOINT", "LOG", "FAILED"):
            needs = {"CHECKPOINT": {"value": 1}, "LOG": {"stream": "STDOUT", "lines": ["x"]}}
            base = {"attempt": attempt["id"], "event": event, **needs.get(event, {})}
            errors = [{"code": "c" * 255, "message": "m" * 50_000}, {"code": "\N{COLLISION SYMBOL}" * 255}]
            for body in (
                bodies(ReportItem, base, each) if event != "FAILED" else ({**base, "error": one} for one in errors)
            ):
                if body["event"] == event:
                    say(one, f"/servers/{one.id}/reports", {"reports": [body]})
    queue = celery_worker()
    for state in ("HELD", "RUNNING", "COMPLETED", "FAILED", "RETRIED"):
        base = {"attempt": str(uuid.uuid4()), "id": uuid.uuid4().hex, "name": "n", "state": state}
        for body in bodies(TaskItem, base, each):
            say(queue, f"/servers/{queue.id}/tasks", {"tasks": [{**body, "attempt": str(uuid.uuid4())}]})
    for body in bodies(TaskSums, {"name": "n"}, each):
        for _ in range(2):
            say(queue, f"/servers/{queue.id}/tasks", {"counter": str(uuid.uuid4()), "tally": [body]})
    for name, serializer in {"cordon": CordonRequest, "drain": DrainRequest}.items():
        for body in bodies(serializer, {"note": "n"}, each):
            say(everybody.operator, f"/servers/{worker().id}/{name}", body)
    for body in bodies(EnterRequest, {"note": "n"}, each):
        say(everybody.operator, "/maintenance/enter", body)
    assert everybody.taken > (150 if each else 30), everybody.taken
    go_on()
    everybody.look()
    say(everybody.operator, "/maintenance/exit", {"note": "n"})
    clock.advance(400 * 86400)
    go_on()
    everybody.look("" if each else EVERYWHERE)
    assert everybody.faults == []


OLD_ROWS = {
    "jobs_workerjob": {
        "available_at": ["'0001-01-01'", "'9999-12-31'"], "good_until": ["'0001-01-01'", "'9999-12-31'"],
        "created_at": ["'0001-01-01'", "'9999-12-31'"], "timeout_seconds": ["1e300", "5e-324"],
        "retry_delay_seconds": ["1e300"], "priority": ["2147483647"], "max_retries": ["2147483647"],
        "payload": ["'[1e300, 1e-300]'"],
        "action": ["'{\"type\": \"script\", \"command\": [1, null]}'", "'{\"type\": \"legacy\"}'"],
        "error": ["'{\"code\": 1, \"message\": [1]}'"],
    },
    "jobs_attempt": {"progress": ["1e300"], "message": ["repeat('x', 100000)"]},
    "liveness_server": {
        "timeout": ["1e12"], "heartbeat_interval": ["1e12"], "termination_grace_period": ["1e12"],
        "max_concurrent": ["2147483647"], "pid": ["2147483647"],
        "cordon_until": ["'9999-12-31'", "'0001-01-01'"],
        "drain_deadline": ["'9999-12-31'", "'0001-01-01'"], "last_heartbeat_at": ["'0001-01-01'"],
        "metrics": ["'{\"cpu_percent\": 1e300, \"memory_percent\": -1e300}'",
                    "'{\"cpu_percent\": [], \"x\": {\"y\": null}}'"],
    },
    "jobs_trigger": {
        "timezone": ["'Mars/Phobos'", "'../../etc'", "''"],
        "interval_seconds": ["1e300", "1e-9"], "timeout_seconds": ["1e300"],
        "max_retries": ["2147483647"], "next_slot_at": ["'0001-01-01'", "'9999-12-31'"],
        "action": ["'{\"type\": \"legacy\"}'", "'{}'", "'[]'", "'null'"], "payload": ["'[1e300]'"],
        "execution": ["'{}'", "'{\"name\": 1, \"steps\": [1]}'", "'[]'"], "created_at": ["'0001-01-01'"],
    },
    "jobs_execution": {"timeout_seconds": ["1e300"], "created_at": ["'0001-01-01'"], "inputs": ["'[1e300]'"]},
}  # fmt: skip


ABOUT = {
    "jobs_workerjob": r"|/jobs|workerjob|attempt|trends|quarantine|recovery|execution",
    "jobs_attempt": r"|/jobs/<|attempt|recovery",
    "liveness_server": r"|server|maintenance|brake|/jobs/<",
    "jobs_trigger": r"|trigger",
    "jobs_execution": r"|execution",
}
"""Addresses that show rows of each table."""


@pytest.mark.parametrize(
    "table",
    [
        table if table in ("jobs_execution", "jobs_attempt") else pytest.param(table, marks=pytest.mark.exhaustive)
        for table in OLD_ROWS
    ],
)
def test_what_an_earlier_release_stored_makes_nothing_a_fault(everybody, table):
    faults = {}
    for column, values in OLD_ROWS[table].items():
        for value in values:
            with transaction.atomic(), connection.cursor() as cursor:
                if column == "timezone":
                    cursor.execute("update jobs_trigger set cron = '* * * * *', interval_seconds = null")
                if column == "interval_seconds":
                    cursor.execute("update jobs_trigger set enabled = false, next_slot_at = null")
                cursor.execute(f"update {table} set {column} = {value}")  # noqa: S608 - all of them from above
                everybody.look(EVERYWHERE + ABOUT[table])
                transaction.set_rollback(True)
            if everybody.faults:
                faults[column, value] = everybody.faults[:4]
                everybody.faults = []
    assert faults == {}


def test_each_field_of_a_request_has_bounds():
    wrong = []
    for serializer in serializers_of(StrictSerializer):
        for name, declared in serializer._declared_fields.items():
            field = declared
            while hasattr(field, "child"):
                field = field.child
            if isinstance(field, serializers.IntegerField | serializers.FloatField):
                has_bounds = field.min_value is not None and field.max_value is not None
            elif isinstance(field, serializers.DateTimeField):
                has_bounds = isinstance(field, TimeField)
            elif isinstance(field, serializers.CharField) and not isinstance(field, serializers.RegexField):
                has_bounds = field.max_length is not None
            else:
                continue
            if not has_bounds and not field.read_only:
                wrong.append((serializer.__name__, name))
    # The error of a report is bounded as a whole by SIZE_LIMIT. A cursor of stale attempts is a pair that is parsed.
    assert sorted(wrong) == [("ReportedError", "message"), ("ReportedError", "traceback"), ("StaleFilter", "cursor")]


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, 1e300, -1e300, 1e13, -1e13, 0, 5e-324, math.nan])
def test_no_number_of_seconds_leads_out_of_the_moments_that_there_are(seconds):
    for at in (EARLIEST, LATEST):
        assert EARLIEST <= moment_after(at, seconds) <= LATEST
        assert clamp_moment(at) == at
    assert clamp_number(seconds, 0, 100) in {0, 100, 5e-324}


def is_now(row):
    at, made = (datetime.fromisoformat(row[name]) for name in ("available_at", "created_at"))
    return abs((at - made).total_seconds()) < 5


def test_a_moment_in_the_past_is_stored_as_now_and_one_beyond_as_the_bound(submit, begin):
    for past in ("0001-01-01T00:00:00Z", "2020-01-01T00:00:00Z"):
        job = submit(available_at=past)
        assert is_now(job)
        run = begin(step("a", available_at=past), step("b", "a", available_at=past))
        assert all(is_now(row | {"created_at": run.read()["created_at"]}) for row in run.read()["steps"])
    assert submit(available_at="9999-12-31T23:59:59Z")["available_at"] == "9999-12-30T00:00:00Z"
    assert submit(good_until="9999-12-31T23:59:59Z")["good_until"] == "9999-12-30T00:00:00Z"
    assert (
        submit.client.post("/jobs", {"action": SCRIPT, "available_at": "9999-12-31T23:59:59-12:00"}).status_code == 400
    )


def test_nobody_jumps_the_queue_by_a_moment_of_long_ago(submit, worker):
    first, second = submit(), submit(available_at="0001-01-01T00:00:00Z")
    assert [attempt["job"]["id"] for attempt in worker().claim(limit=2)] == [first["id"], second["id"]]
    assert json.dumps(second)  # the second job is a normal job
