"""Allowances, tags, the outbox, texts, the status file."""

from __future__ import annotations

import json
import os
import sys

import pytest

from controlplane.agent.api.outbox import BATCH_BYTES, Outbox
from controlplane.agent.command_line import build_parser
from controlplane.agent.fitness import status_file
from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.from_code.outcomes import clean
from controlplane.agent.options import read_options
from controlplane.agent.runners.policy import ActionPolicy
from controlplane.agent.runners.runner import ActionNotAllowed
from controlplane.agent.runners.script import ScriptRunner

PYTHON = f"runtime:python3.{sys.version_info.minor}"


def test_tags_are_those_of_what_is_allowed_the_runtime_and_the_users():
    assert ActionPolicy.parse_options("script,callable").list_tags(["gpu", ""]) == sorted(
        ["gpu", "python", "script", PYTHON]
    )
    assert ActionPolicy.parse_options("callable:myapp.*").list_tags() == sorted(["python", PYTHON])


@pytest.mark.parametrize("path", ["myapp.tasks:send", "myapp.a.b:send", "other:send"])
def test_a_callable_is_allowed_by_a_glob_on_its_module(path):
    ActionPolicy.parse_options("callable:myapp.*, callable:other").choose_runner({"type": "callable", "path": path})


@pytest.mark.parametrize(
    "action",
    [
        {"type": "callable", "path": "os:system"},
        {"type": "callable", "path": "myapplication:x"},
        {"type": "callable"},
        {"type": "script", "command": "true"},
        {"type": "handler", "name": "x"},
        {},
    ],
)
def test_anything_else_is_not_allowed(action):
    with pytest.raises(ActionNotAllowed):
        ActionPolicy.parse_options("callable:myapp.*").choose_runner(action)


@pytest.mark.parametrize("runner", ["docker", "pod"])
def test_a_script_runs_locally_only(runner):
    ActionPolicy.parse_options("script").choose_runner({"type": "script", "runner": None})
    with pytest.raises(ActionNotAllowed):
        ActionPolicy.parse_options("script").choose_runner({"type": "script", "runner": runner})


@pytest.mark.parametrize("wrong", ["handler", "handler:x", "docker:x", "execution", "script:x", "", ","])
def test_an_unknown_allowance_is_refused_with_a_sentence(wrong):
    with pytest.raises(ValueError, match="--allow"):
        ActionPolicy.parse_options(wrong)


def test_a_bare_callable_allows_every_module_even_next_to_a_pattern():
    ActionPolicy.parse_options("callable:myapp.*,callable").choose_runner({"type": "callable", "path": "os:getcwd"})


HANDLERS = ["mail=myapp.tasks:send", "é/1=mine:run"]


def test_a_handler_is_the_call_of_its_function_and_a_tag():
    allowances = ActionPolicy.parse_options("callable:other,handler", HANDLERS)
    mail = {"type": "handler", "name": "mail"}
    assert "myapp.tasks:send" in allowances.choose_runner(mail).command_line(mail)
    assert allowances.list_tags() == sorted(["handler:mail", "handler:é/1", "python", PYTHON])
    for action in ({"type": "handler", "name": "post"}, {"type": "handler"}, {"type": "callable", "path": "mine:run"}):
        with pytest.raises(ActionNotAllowed):
            allowances.choose_runner(action)


def test_handlers_are_allowed_unless_allow_names_something_else():
    assert ActionPolicy.parse_options(None).runners.keys() == {"script", "callable"}
    assert ActionPolicy.parse_options(None, HANDLERS).runners.keys() == {"script", "callable", "handler"}
    assert ActionPolicy.parse_options("handler", HANDLERS).list_tags() == sorted(
        ["handler:mail", "handler:é/1", PYTHON]
    )


@pytest.mark.parametrize("wrong", ["mail", "mail=", "=a:b", "mail=a", "mail=a:b:c", "mail=a.:b", "ma il=a:b"])
def test_a_handler_that_names_no_function_is_refused_with_a_sentence(wrong):
    with pytest.raises(ValueError, match="write NAME="):
        ActionPolicy.parse_options(None, [wrong])


def test_two_handlers_of_one_name_and_handlers_that_are_not_allowed_are_refused():
    with pytest.raises(ValueError, match=r"myapp\.tasks:send already"):
        ActionPolicy.parse_options(None, [*HANDLERS, "mail=x:y"])
    with pytest.raises(ValueError, match="need each other"):
        ActionPolicy.parse_options("script", HANDLERS)


def test_the_environment_stands_in_for_url_and_token(monkeypatch):
    monkeypatch.setenv("CONTROLPLANE_URL", "http://plane")
    monkeypatch.setenv("CONTROLPLANE_TOKEN", "secret")
    options = read_options(build_parser().parse_args(["--timeout", "60", "--grace", "5"]))
    assert (options.url, options.token) == ("http://plane", "secret")
    assert options.config == {"timeout_seconds": 60.0, "termination_grace_period_seconds": 5.0}


def test_a_token_comes_from_a_file_or_the_environment_and_from_one_place_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("CONTROLPLANE_TOKEN", "of the environment")
    file = tmp_path / "token"
    file.write_text("of a file\n")

    def token(*arguments):
        return read_options(build_parser().parse_args(["--url", "http://plane", *arguments])).token

    assert token() == "of the environment"
    assert token("--token-file", str(file)) == "of a file"
    assert token("--token", "of the command") == "of the command"
    with pytest.raises(ValueError, match="one of them"):
        token("--token", "x", "--token-file", str(file))
    with pytest.raises(ValueError, match=r"cannot be read: .*No such file"):
        token("--token-file", str(tmp_path / "none"))
    file.write_text(" ")
    with pytest.raises(ValueError, match="is empty"):
        token("--token-file", str(file))


def queued_reports(outbox):
    return [(report["attempt"], report["event"]) for report in outbox.oldest_reports()]


def test_reports_stay_in_order_until_they_are_answered():
    outbox = Outbox()
    for n in range(3):
        outbox.add_reports({"attempt": f"a{n}", "event": "STARTED"})
    first = outbox.oldest_reports()
    outbox.add_reports({"attempt": "a0", "event": "COMPLETED"})
    assert outbox.oldest_reports()[:3] == first
    outbox.record_answer(3)
    assert queued_reports(outbox) == [("a0", "COMPLETED")]


def test_only_what_was_never_sent_can_be_withdrawn():
    outbox = Outbox()
    outbox.add_reports({"attempt": "sent", "event": "STARTED"})
    outbox.oldest_reports()
    outbox.add_reports({"attempt": "unsent", "event": "STARTED"})
    assert outbox.withdraw_reports("unsent") is True
    assert outbox.withdraw_reports("sent") is False
    assert queued_reports(outbox) == [("sent", "STARTED")]


def test_a_batch_fits_a_request_and_a_single_big_report_is_still_sent():
    outbox = Outbox()
    for _ in range(3):
        outbox.add_reports({"attempt": "a", "event": "COMPLETED", "output": "x" * (BATCH_BYTES - 1000)})
    assert len(outbox.oldest_reports()) == 1


def test_text_is_made_safe_for_json_and_postgresql():
    assert decode_text(b"a\0b\xff") == "a\ufffdb\ufffd"
    assert clean({"k\0": ["\0", 1, None, "ü\ud800"]}) == {"k\ufffd": ["\ufffd", 1, None, "ü?"]}


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("CONTROLPLANE_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path / "run"


def test_check_passes_just_before_the_timeout_and_fails_at_it(runtime, monkeypatch):
    status_file.write_status("a/b", "id", "RUNNING", timeout=10, answered_at=100)
    assert runtime.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(status_file, "read_uptime", lambda: 109.9)
    assert status_file.check_status("a/b") is None
    assert status_file.check_status(None) is None
    monkeypatch.setattr(status_file, "read_uptime", lambda: 110.0)
    assert "no response for 10 s" in status_file.check_status("a/b")


def test_check_explains_that_there_is_no_agent_or_a_broken_file(runtime):
    assert "no agent" in status_file.check_status("a")
    assert "no agents" in status_file.check_status(None)
    status_file.write_status("a", "id", "RUNNING", 10, 0)
    status_file.status_path("a").write_text("{")
    assert "cannot be read" in status_file.check_status("a")
    status_file.write_status("b", "id", "RUNNING", 10, 0)
    assert "--name" in status_file.check_status(None)


def test_check_notices_that_the_process_id_is_anothers(runtime):
    status_file.write_status("a", "id", "RUNNING", timeout=10, answered_at=status_file.read_uptime())
    path = status_file.status_path("a")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"process_started_at": 1.5}))
    assert "not running" in status_file.check_status("a")


def write_fresh_status(name="a"):
    status_file.write_status(name, "id", "RUNNING", timeout=10, answered_at=status_file.read_uptime())
    return status_file.status_path(name)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to others")
@pytest.mark.parametrize("foreign", ["file", "folder"])
def test_check_believes_no_status_file_or_folder_of_another_user(runtime, foreign):
    path = write_fresh_status()
    assert status_file.check_status("a") is None
    os.chown(path if foreign == "file" else runtime, 12345, -1)
    assert "belongs to user 12345" in status_file.check_status("a")
    assert "belongs to user 12345" in status_file.check_status(None)
    assert not status_file.is_running("a")


def test_check_follows_no_link_and_opens_no_pipe(runtime, tmp_path):
    path = write_fresh_status()
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert "cannot be read" in status_file.check_status("a")
    path.unlink()
    os.mkfifo(path)
    assert "cannot be read" in status_file.check_status("a")
    path.unlink()
    runtime.rename(tmp_path / "moved")
    runtime.symlink_to(tmp_path / "moved")
    (tmp_path / "elsewhere.json").rename(tmp_path / "moved" / path.name)
    assert "cannot be read" in status_file.check_status("a")


def test_a_script_finds_its_execution_and_step_and_nobody_elses(tmp_path):
    own = {"JOB_STEP": "of the agent's own"}
    job = {"id": "j", "action": {"type": "script", "command": "true"}, "payload": None}
    item = {"id": "a", "number": 1, "job": {**job, "execution": "e", "step": "load"}}
    inside = ScriptRunner().build_command(item, {"JOB_PROGRESS": tmp_path / "progress"}, own).env
    assert (inside["JOB_EXECUTION"], inside["JOB_STEP"]) == ("e", "load")
    alone = {**item, "job": {**job, "execution": None, "step": None}}
    alone = ScriptRunner().build_command(alone, {"JOB_PROGRESS": tmp_path / "progress"}, own).env
    assert not {"JOB_EXECUTION", "JOB_STEP"} & set(alone)


def test_a_report_that_was_not_stored_waits_with_later_ones_of_its_attempt_only():
    outbox = Outbox()
    outbox.add_reports({"attempt": "bad", "event": "STARTED"}, {"attempt": "good", "event": "STARTED"})
    outbox.add_reports({"attempt": "bad", "event": "LOG"})
    assert len(outbox.oldest_reports()) == 3
    outbox.record_answer(2, unstored={0}, cap=1000)
    outbox.add_reports({"attempt": "bad", "event": "COMPLETED"}, {"attempt": "good", "event": "COMPLETED"})
    assert queued_reports(outbox) == [("good", "COMPLETED")]
    assert len(outbox) == 4
    outbox.record_answer(1)
    assert len(outbox.unanswered_reports()) == len(outbox), "what waits aside is left on disk too"
    (aside,) = outbox._deferred.values()
    assert outbox.next_retry_at() == aside.due_at
    aside.due_at = 0.0
    assert queued_reports(outbox) == [("bad", "STARTED"), ("bad", "LOG"), ("bad", "COMPLETED")]
    outbox.record_answer(3, unstored={0, 1, 2}, cap=1000)
    assert outbox._failures["bad"] == 2 and queued_reports(outbox) == []
    assert outbox.withdraw_reports("bad") and len(outbox) == 0 and outbox.next_retry_at() is None


def options_of(*words):
    return read_options(build_parser().parse_args(["--url", "http://x", "--token", "t", *words]))


def test_an_agent_with_django_takes_the_tasks_of_its_queues():
    assert {"handler:django-task", "queue:default", "script"} <= {*options_of("--django", "mysite.settings").tags}
    own = options_of("--django", "mysite.settings", "--queues", "mail, sms", "--allow", "handler").tags
    assert own == sorted(["handler:django-task", "queue:mail", "queue:sms", PYTHON])


def test_without_django_it_has_no_queues():
    assert not [tag for tag in options_of("--queues", "mail").tags if tag.startswith(("queue:", "handler:"))]


def test_tasks_of_django_alone_get_what_its_settings_read_and_never_the_token(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://")
    monkeypatch.setenv("CONTROLPLANE_TOKEN", "secret")
    options = options_of("--django", "mysite.settings", "--handler", "mine=a:b")

    def environment_of(**action):
        return options.policy.choose_runner(action).environment(action, options.environment)

    of_task = environment_of(type="handler", name="django-task")
    assert (of_task["DJANGO_SETTINGS_MODULE"], of_task["DATABASE_URL"]) == ("mysite.settings", "postgresql://")
    others = [environment_of(type="handler", name="mine"), environment_of(type="script", command="true")]
    assert not [one for one in [of_task, *others] if "CONTROLPLANE_TOKEN" in one]
    assert not [one for one in others if "DATABASE_URL" in one]
