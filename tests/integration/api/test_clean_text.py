"""Test that names and reasons are one line without control characters; the output of programs is kept whole."""

import uuid

import pytest
from django.core.management import CommandError, call_command
from rest_framework import serializers

import jobs.api.urls  # noqa: F401 - all calls, and with them their serializers
from controlplane.console.actions.servers import NoteForm
from controlplane.core.rest import FreeTextField, StrictSerializer, TextField, clean
from liveness.models import ApiToken, Server
from tests.integration.api.test_bad_input import SCRIPT, assert_problem, stored
from tests.support.executions import step

pytestmark = pytest.mark.django_db

EVIL = ["x\ny", "\x1b[2J", "x\r", "\x7f", "\x9b", "\u2028", "\u202e"]
KEPT_WHOLE = {"code", "message", "exception", "traceback", "lines", "text", "reason", "retry_on", "env", "cwd"}
"""What code and probes write, and what they are run with."""


def serializers_of(base):
    return {base}.union(*(serializers_of(known) for known in base.__subclasses__()))


def test_every_text_that_a_call_takes_is_clean_but_those_that_programs_write():
    wrong = []
    for serializer in serializers_of(StrictSerializer):
        for name, field in serializer._declared_fields.items():
            leaf = getattr(field, "child", field)
            if isinstance(leaf, serializers.CharField) and clean not in leaf.validators:
                is_free = isinstance(leaf, FreeTextField) and name in KEPT_WHOLE
                if not (is_free or isinstance(leaf, serializers.RegexField)):
                    wrong.append((serializer.__name__, name))
    assert sorted(wrong) == [("QueueFilter", "cursor"), ("StaleFilter", "cursor")], "both are read as JSON"


def test_the_text_field_is_clean_by_itself():
    assert clean in TextField().validators
    assert clean not in FreeTextField().validators


def refused(caller, path, body, field):
    wrong = []
    for evil in EVIL:
        before = stored()
        answer = caller.post(path, {**body, field: [evil] if field in ("tags", "steps") else evil})
        try:
            assert "control characters" in str(assert_problem(answer, 400, "invalid")["errors"][field]).lower()
            assert stored() == before
        except AssertionError as error:
            wrong.append((evil, str(error)[:100]))
    assert not wrong


@pytest.mark.parametrize("field", ["name", "cluster", "hostname", "version", "tags"])
def test_a_server_registers_no_text_with_control_characters(api, field):
    registration = {"type": "WORKER", "name": "one", "instance_id": str(uuid.uuid4())}
    refused(api("worker"), "/servers", registration, field)


@pytest.mark.parametrize("field", ["key", "tags"])
def test_a_job_has_no_control_characters_in_what_names_it(api, field):
    refused(api("client"), "/jobs", {"action": SCRIPT}, field)


def test_neither_have_executions_steps_and_triggers(api):
    operator = api("operator")
    refused(operator, "/executions", {"steps": [step("a")]}, "name")
    execution = {"name": "e", "steps": [step("a")]}
    refused(operator, "/triggers", {"interval_seconds": 5, "action": SCRIPT, "execution": execution}, "name")
    assert_problem(operator.post("/executions", {"name": "e", "steps": [step("a\nb")]}), 400, "invalid")


def test_a_note_is_one_line(api, submit):
    refused(api("operator"), "/maintenance/enter", {}, "note")
    refused(submit.client, f"/jobs/{submit()['id']}/cancel", {}, "note")
    assert_problem(submit.client.post("/jobs", {"action": SCRIPT}, **{"Idempotency-Key": "a\x1bb"}), 400)


def test_a_note_of_a_form_becomes_one_line_and_its_control_characters_are_refused():
    form = NoteForm({"note": "the disk\r\nis full\n"})
    assert form.is_valid() and form.cleaned_data["note"] == "the disk is full"
    assert not NoteForm({"note": "the \x1b[2J disk"}).is_valid()


def test_a_command_takes_no_control_characters_either():
    for command in (["create_token", "--role", "client", "a\nb"], ["maintenance", "enter", "--note", "a\x1bb"]):
        with pytest.raises(CommandError, match="Control characters"):
            call_command(*command)
    assert not ApiToken.objects.filter(name__startswith="a\n").exists()


def test_what_code_wrote_is_kept_as_it_is(worker, submit):
    one, job = worker(), submit()
    attempt = one.hold()
    error = {"code": "a\nb", "message": "\x1b[31mred\n", "traceback": "one\ntwo"}
    assert one.report({"attempt": attempt["id"], "event": "FAILED", "error": error})[0]["accepted"]
    assert submit.client.get(f"/jobs/{job['id']}").json()["error"] == error
    # A probe that fails with three lines cordons its server all the same.
    assert one.beat(schedulable=False, reason="a\nb\nc").status_code == 200
    assert Server.objects.get().cordon_reason == "a\nb\nc"
