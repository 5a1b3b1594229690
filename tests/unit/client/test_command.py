"""Command line: its calls, its output, and its exit codes."""

import io
import json
import subprocess
import sys
import uuid

import pytest

from controlplane.agent.api.client import Refused
from controlplane.client.__main__ import main
from tests.support.scripted import Say, problem
from tests.support.standin import ROOT

ID, OTHER = str(uuid.uuid4()), str(uuid.uuid4())
JOB = {
    "id": ID, "state": "COMPLETED", "finished_at": "2030-01-01T00:00:05Z", "created_at": "2030-01-01T00:00:00Z",
    "name": "", "action": {"type": "script", "command": ["echo", "a\x1b[31m"]}, "attempts": [{}, {}],
    "flags": [], "error": None, "left_out": [], "output": {"stdout": "hello"}, "late_reports": [],
    "timeline": [{"attempt": 1, "state": "RESUBMITTED", "at": "2030-01-01T00:00:01Z",
                  "server": {"id": OTHER, "name": "worker-1"}, "reason": "server worker-1 is DISCONNECTED"}],
}  # fmt: skip
FAILED = {**JOB, "id": OTHER, "state": "FAILED", "error": {"code": "EXIT_1", "message": "no rows"}}
SERVER = {
    "id": ID, "name": "worker-1", "type": "WORKER", "own": False, "cluster": "default", "state": "RUNNING",
    "fresh": True, "cordoned": False, "drain": None, "attempts": [], "used_slots": 0, "max_concurrent": 4,
    "last_heartbeat_at": None, "tags": [],
}  # fmt: skip
SILENT = {"server": {"id": ID, "name": "worker-2"}, "state": "RUNNING", "silence_seconds": 4.2, "held": 1}
COMING = {"to": "DISCONNECTED", "at": "2030-01-01T00:00:09Z", "reason": "silent for 10 s"}
INSTANCE = {
    "at": "2030-01-01T00:00:00Z", "jobs": {"RUNNING": 3, "FAILED": 0}, "flagged": {}, "brakes": [],
    "servers": [{"type": "WORKER", "state": "RUNNING", "cluster": "a", "servers": 2, "heard": 1}],
    "oldest_pending_seconds": None, "last_check": {"age_seconds": 0.5}, "maintenance": None,
    "attention": [{**SILENT, "next_transition": COMING}],
    "verdict": {"tone": "worry", "text": "1 of 2 servers alive. worker-2 silent for 4 s."},
}  # fmt: skip


@pytest.fixture(autouse=True)
def surroundings(plane, pauses, monkeypatch):
    monkeypatch.setenv("CONTROLPLANE_URL", plane.url)
    monkeypatch.setenv("CONTROLPLANE_TOKEN", "secret")


@pytest.fixture
def run(capsys):
    def run(*words):
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("more", "work"),
    [
        ({}, "yes"), ({"fresh": False}, "silent"), ({"cordoned": True, "state": "MAINTENANCE"}, "cordoned"),
        ({"state": "MAINTENANCE"}, "no"), ({"state": "TERMINATED_GRACEFULLY"}, "no"),
        ({"own": True, "type": "EXECUTOR"}, "no"), ({"drain": {"by": "me"}}, "draining"),
    ],
    ids=str,
)  # fmt: skip
def test_a_list_of_servers_has_yes_only_for_those_that_may_get_work(plane, run, more, work):
    plane.answers["GET", "/servers"] = [listed({**SERVER, **more})]
    _, out, _ = run("servers")
    head, row = (line.split() for line in out.splitlines())
    assert row[head.index("work")] == work


def listed(*items):
    return Say(200, {"items": list(items), "next": None})


def test_jobs_are_a_table_of_plain_text_where_no_terminal_reads(plane, run):
    plane.answers["GET", "/jobs"] = [listed(JOB, FAILED)]
    code, out, _ = run("jobs", "--state", "FAILED")
    assert (code, plane.calls[0].query) == (0, {"state": ["FAILED"], "limit": ["50"]})
    head, first, second = out.splitlines()
    assert head.split() == ["id", "state", "job", "tries", "server", "created", "finished", "remarks"]
    assert first.split()[:4] == [ID, "COMPLETED", "echo", r"a\x1b[31m"] and second.endswith("EXIT_1")


def test_a_list_as_json_is_a_document_in_each_line(plane, run):
    plane.answers["GET", "/jobs"] = [listed(JOB, FAILED)]
    code, out, _ = run("--json", "jobs", "--limit", "1")
    assert (code, [json.loads(line) for line in out.splitlines()]) == (0, [JOB])
    assert run("jobs", "--json")[1].count("\n") == 2


def test_servers_executions_triggers_and_events_are_listed(plane, run):
    times = {"created_at": "2030-01-01T00:00:00Z", "finished_at": None}
    execution = {"id": ID, "name": "nightly", "state": "RUNNING", "steps": {"RUNNING": 1, "BLOCKED": 0}, **times}
    trigger = {"id": ID, "name": "hourly", "cron": None, "interval_seconds": 3600, "enabled": True, "slots": []}
    event = {"at": "2030-01-01T00:00:00Z", "action": "", "from": "RUNNING", "to": "DISCONNECTED", "actor": "liveness"}
    plane.answers["GET", "/servers"] = [listed(SERVER)]
    plane.answers["GET", "/executions"] = [listed(execution)]
    plane.answers["GET", "/triggers"] = [listed({**trigger, "next_slot_at": None})]
    plane.answers["GET", f"/servers/{ID}/events"] = [listed({**event, "reason": "silent"})]
    assert "worker-1  WORKER  RUNNING  yes   0/4" in run("servers")[1]
    assert "1 RUNNING" in run("executions")[1]
    assert "every 3600 s" in run("triggers")[1]
    assert "RUNNING → DISCONNECTED" in run("events", "worker-1")[1]


@pytest.mark.parametrize("what", ["servers", "jobs", "executions", "triggers"])
def test_a_list_may_be_of_one_namespace(plane, run, what):
    plane.answers["GET", f"/{what}"] = [listed()]
    assert run(what, "--namespace", "red")[0] == 0
    assert plane.calls[0].query == {"namespace": ["red"], "limit": ["50"]}


def test_a_job_and_an_execution_may_be_made_in_a_namespace(plane, run, tmp_path):
    one, many = tmp_path / "execution", tmp_path / "jobs"
    one.write_text('{"name": "n", "steps": []}')
    many.write_text('[{"action": {"type": "x"}}]')
    plane.answers["POST", "/jobs"] = lambda call: Say(201, {"items": [JOB]} if isinstance(call.body, list) else JOB)
    plane.answers["POST", "/executions"] = [Say(201, JOB)]
    for words in (["submit", "--namespace", "red", "true"], ["submit", "--file", str(many), "--namespace", "red"],
                  ["execute", str(one), "--namespace", "red"]):  # fmt: skip
        assert run(*words)[0] == 0
        assert plane.calls[-1].query == {"namespace": ["red"]} and "namespace" not in str(plane.calls[-1].body)
    plane.answers["POST", "/jobs"] = [problem(403, "wrong_namespace", "This caller reaches the namespace blue only.")]
    code, _, err = run("submit", "--namespace", "red", "true")
    assert code == 3 and "reaches the namespace blue only" in err


@pytest.mark.parametrize(
    ("waiting_for", "words"),
    [
        (None, ""),
        ({"what": "available_at", "until": "2030-01-01T00:00:00Z"}, "waits  until 2030-01-01T00:00:00Z"),
        (
            {"what": "stop", "until": None, "server": {"id": ID, "name": "worker-1"}},
            "waits  until worker-1 has stopped it, or must have",
        ),
        ({"what": "max_parallel", "until": None, "step": "convert"}, "waits  for other items of convert"),
    ],
    ids=["nothing", "time", "stop", "loop"],
)
def test_the_reason_of_a_waiting_job_is_a_text(plane, run, waiting_for, words):
    ruled_out = {"server": {"id": ID, "name": "worker-2"}, "filter": "tags", "detail": "it lacks gpu"}
    answer = {"eligible": [], "ruled_out": [ruled_out], "waiting_for": waiting_for, "flags": []}
    plane.answers["GET", f"/jobs/{ID}/placement"] = [Say(200, answer)]
    code, out, _ = run("placement", ID)
    assert code == 0 and "worker-2  tags    it lacks gpu" in out
    assert out.startswith(words or "server") and "{" not in out


def test_a_job_is_shown_with_its_timeline(plane, run):
    plane.answers["GET", f"/jobs/{ID}"] = [Say(200, JOB)]
    code, out, _ = run("job", ID)
    assert code == 0
    assert "output" in out and '{"stdout": "hello"}' in out
    assert "1        RESUBMITTED  2030-01-01T00:00:01Z  worker-1  server worker-1 is DISCONNECTED" in out


def test_a_command_is_submitted_and_its_id_is_printed(plane, run):
    plane.answers["POST", "/jobs"] = [Say(201, JOB)]
    assert run("submit", "--tag", "gpu", "--payload", '{"n": 1}', "echo", "-n", "hi") == (0, f"{ID}\n", "")
    sent = plane.calls[0].body
    assert sent["action"] == {"type": "script", "command": ["echo", "-n", "hi"]}
    assert (sent["tags"], sent["payload"]) == (["gpu"], {"n": 1}) and sent["key"]
    run("submit", "echo $JOB_ATTEMPT")
    assert plane.calls[1].body["action"]["command"] == "echo $JOB_ATTEMPT"
    run("submit", "--callable", "a.b:c")
    assert plane.calls[2].body["action"] == {"type": "callable", "path": "a.b:c"}
    run("submit", "--", "true")
    assert plane.calls[3].body["action"]["command"] == "true"
    run("submit", "--name", "nightly", "true")
    assert (plane.calls[4].body["name"], plane.calls[4].query) == ("nightly", {})


@pytest.mark.parametrize(
    "words", [["submit", "--nam", "red", "true"], ["jobs", "--name", "red"], ["--tok", "x", "jobs"]]
)
def test_half_an_option_is_not_taken_for_another(plane, run, words):
    with pytest.raises(SystemExit) as refused:
        run(*words)
    assert refused.value.code == 2 and plane.calls == []


def test_jobs_are_listed_by_their_names_and_without_one_by_what_they_run(plane, run):
    plane.answers["GET", "/jobs"] = [Say(200, {"items": [JOB | {"name": "nightly"}, JOB], "next": None})]
    _, out, _ = run("jobs")
    assert [line.split()[2] for line in out.splitlines()] == ["job", "nightly", "echo"]
    task = {"type": "celery", "task": "orders.pack"}
    plane.answers["GET", "/jobs"] = [listed(JOB | {"action": task, "attempts": [{"server": SERVER}]})]
    assert run("jobs")[1].splitlines()[1].split()[2:5] == ["orders.pack", "1", "worker-1"]


def test_jobs_of_a_file_are_submitted_together(plane, run, tmp_path, monkeypatch):
    plane.answers["POST", "/jobs"] = lambda call: Say(
        201, {"items": [{**JOB, "id": job["payload"]} for job in call.body]}
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps([{"action": {"type": "x"}, "payload": n} for n in "ab"])))
    assert run("submit", "--file", "-", "--priority", "5") == (0, "a\nb\n", "")
    assert [job["priority"] for job in plane.calls[0].body] == [5, 5]


@pytest.mark.parametrize(("job", "code"), [(JOB, 0), (FAILED, 1)])
def test_who_waits_learns_from_the_exit_code_how_it_ended(plane, run, job, code):
    plane.answers["POST", "/jobs"] = [Say(201, {**job, "state": "PENDING", "finished_at": None})]
    plane.answers["GET", "/jobs/wait"] = [
        Say(200, {"items": [], "unknown": []}),
        Say(200, {"items": [job], "unknown": []}),
    ]
    status, out, _ = run("submit", "--wait", "true")
    assert status == code and out.startswith(f"{job['id']} {job['state']}")


def test_what_has_not_ended_in_time_is_5(plane, run):
    plane.answers["GET", "/jobs/wait"] = [Say(200, {"items": [], "unknown": []})]
    code, _, err = run("wait", ID, OTHER, "--timeout", "0")
    assert (code, err) == (5, "2 jobs have not ended after 0 s\n")


def log_page(*lines, last, complete):
    return Say(200, {"items": [{"line": line} for line in lines], "next": None, "last": last, "complete": complete})


def test_a_log_is_followed_to_the_end_of_its_job(plane, run):
    pages = [log_page("one", last="1", complete=False), log_page("two", last="2", complete=True)]
    plane.answers["GET", f"/jobs/{ID}/logs"] = pages
    assert run("logs", "-f", ID) == (0, "one\ntwo\n", "")
    assert [(call.query["cursor"], call.query["wait"]) for call in plane.calls] == [
        (["0"], ["30.0"]),
        (["1"], ["30.0"]),
    ]


EVENT = {
    "id": 7, "at": "2026-01-01T00:00:00Z", "subject": {"type": "SERVER", "id": ID, "name": "worker-1"},
    "from": "RUNNING", "to": "DISCONNECTED", "action": "", "actor": "liveness", "reason": "silent", "changes": None,
}  # fmt: skip


def test_events_of_everything_are_lines_and_end_unless_they_are_followed(plane, run):
    plane.answers["GET", "/events"] = [Say(200, {"items": [EVENT], "last": "7"}), Say(200, {"items": [], "last": "7"})]
    code, out, _ = run("events", "--after", "5")
    assert code == 0 and "SERVER worker-1  RUNNING → DISCONNECTED  liveness  silent" in out
    assert [call.query for call in plane.calls] == [{"after": ["5"]}, {"after": ["7"]}]


def test_events_of_one_server_are_not_followed(run):
    code, _, err = run("events", "worker-1", "--follow")
    assert code == 2 and "leave the server out" in err


def test_of_several_one_that_is_refused_keeps_the_others_from_nothing(plane, run):
    plane.answers["POST", f"/jobs/{ID}/cancel"] = [problem(409, "job_ended", "This job has ended.")]
    plane.answers["POST", f"/jobs/{OTHER}/cancel"] = [Say(200, {**FAILED, "state": "CANCELLED"})]
    code, out, err = run("cancel", ID, OTHER, "--note", "by mistake")
    assert (code, out, err) == (3, f"{OTHER} CANCELLED\n", f"{ID}: This job has ended.\n")
    assert [call.body for call in plane.calls] == [{"note": "by mistake"}] * 2


def test_a_waiting_job_is_changed_by_the_options_that_are_given(plane, run):
    plane.answers["PATCH", f"/jobs/{ID}"] = [Say(200, {**JOB, "state": "PENDING"})]
    code, out, _ = run("change", ID, "--priority", "-3", "--run-now", "--tag", "gpu", "--note", "urgent")
    assert (code, out) == (0, f"{ID} PENDING\n")
    assert plane.calls[-1].body == {"priority": -3, "available_at": None, "tags": ["gpu"], "note": "urgent"}
    code, _, err = run("change", ID)
    assert (code, err) == (2, "Give at least one option, like --priority 10 or --run-now\n")


def test_a_bulk_change_takes_its_changes_as_json(plane, run):
    plane.answers["POST", "/batches"] = [Say(201, {"id": ID})]
    assert run("begin-batch", "change_job", ID, "--changes", '{"priority": 3}', "--note", "n")[0] == 0
    assert plane.calls[-1].body["changes"] == {"priority": 3}


def test_rules_of_limits_are_set_listed_and_deleted(plane, run):
    rule = {
        "pattern": "customer:*", "namespace": "default", "running": 2, "starts": 10, "per_seconds": 60, "note": "n",
        "fair": True, "weight": None, "by": "operator:me",
        "created_at": "2030-01-01T00:00:00Z", "changed_at": "2030-01-01T00:00:00Z",
    }  # fmt: skip
    path = "/limits/customer%3A%2A"
    plane.answers["PUT", path] = [Say(201, rule)]
    words = ("--running", "2", "--starts", "10", "--per", "1m", "--note", "n")
    assert run("set-limit", "customer:*", *words) == (0, "customer:*\n", "")
    assert plane.calls[-1].body == {"running": 2, "starts": 10, "per_seconds": 60, "note": "n"}
    plane.answers["PUT", "/limits/namespace%3Ared"] = [Say(201, rule)]
    assert run("set-limit", "namespace:red", "--max-waiting", "9", "--submissions-per-minute", "60")[0] == 0
    quotas = {"max_waiting": 9, "submissions_per_minute": 60}
    assert plane.calls[-1].body == {"running": None, "starts": None, "per_seconds": None, "note": "", **quotas}
    assert run("set-limit", "customer:*", "--fair", "--weight", "3")[0] == 0
    assert plane.calls[-1].body == {
        "running": None,
        "starts": None,
        "per_seconds": None,
        "note": "",
        "fair": True,
        "weight": 3,
    }
    assert run("set-limit", "customer:*", "--no-fair")[0] == 0
    assert plane.calls[-1].body["fair"] is False
    plane.answers["GET", "/limits"] = [listed({**rule, "max_waiting": 9})]
    code, out, _ = run("limits")
    assert code == 0
    assert "10 in 60 s" in out and "max_waiting 9" in out
    plane.answers["DELETE", path] = [Say(204, None)]
    assert run("delete-limit", "customer:*") == (0, "", "")


def test_a_job_is_submitted_with_keys_of_limits(plane, run):
    plane.answers["POST", "/jobs"] = [Say(201, {**JOB, "state": "PENDING"})]
    assert run("submit", "--limit", "customer:42", "--limit", "stripe", "true")[0] == 0
    assert plane.calls[-1].body["limits"] == ["customer:42", "stripe"]


def test_a_resubmission_names_the_new_job(plane, run):
    plane.answers["POST", f"/jobs/{ID}/resubmit"] = [Say(201, {**FAILED, "state": "PENDING"})]
    assert run("resubmit", ID)[1] == f"{ID} → {OTHER} PENDING\n"


def test_a_server_is_drained_by_its_name_with_a_note(plane, run):
    plane.answers["GET", "/servers"] = [listed(SERVER, {**SERVER, "id": OTHER, "name": "worker-11"})]
    plane.answers["POST", f"/servers/{ID}/drain"] = [Say(200, {**SERVER, "drain": {"deadline": "x"}})]
    code, out, _ = run("drain", "worker-1", "--note", "new disk", "--deadline", "60")
    assert (code, out) == (0, f"{ID} worker-1 RUNNING draining\n")
    assert plane.calls[-1].body == {"note": "new disk", "deadline_seconds": 60}
    with pytest.raises(SystemExit) as left:
        run("drain", "worker-1")  # without a note
    assert left.value.code == 2


def test_a_name_that_several_servers_have_is_no_name(plane, run):
    plane.answers["GET", "/servers"] = [listed(SERVER, {**SERVER, "id": OTHER})]
    code, _, err = run("cordon", "worker-1", "--note", "x")
    assert (code, err) == (2, "2 alive servers are called 'worker-1': give the id of one\n")
    plane.answers["GET", "/servers"] = [listed({**SERVER, "state": "INACTIVE"})]
    code, _, err = run("cordon", "worker-1", "--note", "x")
    latest = f"The latest with this name is INACTIVE: give its id {ID}"
    assert (code, err) == (2, f"No alive server is called 'worker-1'. {latest}\n")
    plane.answers["GET", "/servers"] = [listed()]
    err = run("cordon", "worker-1", "--note", "x")[2]
    assert err == "No server is called 'worker-1': `controlplane servers` lists them\n"


def test_the_latest_server_of_a_name_is_shown_although_it_is_lost(plane, run):
    lost = {**SERVER, "state": "DISCONNECTED"}
    plane.answers["GET", "/servers"] = [listed(lost, {**lost, "id": OTHER, "state": "INACTIVE"})]
    plane.answers["GET", f"/servers/{ID}"] = [Say(200, lost)]
    plane.answers["GET", f"/servers/{ID}/events"] = [listed()]
    assert "DISCONNECTED" in run("server", "worker-1")[1]
    assert run("events", "worker-1")[0] == 0


def test_a_requested_cancellation_of_running_code_is_named(plane, run):
    asked = {**JOB, "state": "RUNNING", "finished_at": None, "cancel_requested_at": "2030-01-01T00:00:04Z"}
    plane.answers["POST", f"/jobs/{ID}/cancel"] = [Say(200, asked)]
    assert run("cancel", ID)[1] == f"{ID} RUNNING (cancellation requested)\n"


def test_a_wrong_option_is_refused_with_the_options_of_its_command(run, capsys):
    for words, error in [
        (["jobs", "--since", "now"], "controlplane.client jobs: error: unrecognized arguments: --since now"),
        (["submit", "--priority", "high", "x"], "argument --priority: 'high' is not a whole number"),
    ]:
        with pytest.raises(SystemExit):
            run(*words)
        err = capsys.readouterr().err
        assert error in err and "--namespace" in err


def test_the_last_column_of_a_table_is_never_cut(plane, run):
    long = "silent for 10 s " * 9
    plane.answers["GET", f"/jobs/{ID}"] = [Say(200, {**JOB, "timeline": [{**JOB["timeline"][0], "reason": long}]})]
    assert long.rstrip() in run("job", ID)[1]


def test_a_job_is_found_by_the_end_of_its_id_as_pages_show_it(plane, run):
    plane.answers["GET", "/jobs"] = [listed(JOB, FAILED)]
    plane.answers["POST", f"/jobs/{OTHER}/cancel"] = [Say(200, {**FAILED, "state": "CANCELLED"})]
    assert run("cancel", OTHER[-12:])[0] == 0
    code, _, err = run("cancel", "ffffffffffff")
    assert (code, err) == (2, "No id ends with 'ffffffffffff' among the latest 500 jobs: give the whole id\n")
    plane.answers["GET", "/jobs"] = [listed(FAILED, FAILED)]
    assert run("job", FAILED["id"][-6:])[2].startswith("2 ids end with ")


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("5m", 300), ("1.5h", 5400)])
def test_durations_are_written_as_people_write_them(plane, run, text, seconds):
    plane.answers["POST", f"/servers/{ID}/drain"] = [Say(200, {**SERVER, "drain": {"deadline": "x"}})]
    assert run("drain", ID, "--note", "new disk", "--deadline", text)[0] == 0
    assert plane.calls[-1].body["deadline_seconds"] == seconds


@pytest.mark.parametrize("text", ["soon", "-1", "none", "5 weeks", "nan"])
def test_a_duration_that_is_none_is_refused_with_what_would_be_right(run, capsys, text):
    with pytest.raises(SystemExit) as left:
        run("drain", ID, "--note", "new disk", f"--deadline={text}")
    assert left.value.code == 2 and "is not a duration; write seconds, or 45s, 5m, 24h, 30d" in capsys.readouterr().err


def test_a_refusal_as_text_names_its_cause():
    errors = {"action": {"type": ["One of script is needed."]}, "steps": [{}, {"key": ["Too long."]}]}
    text = str(Refused(400, "invalid", "The request is not valid.", errors))
    assert text == (
        "400 invalid: The request is not valid. (action.type: One of script is needed.; steps[1].key: Too long.)"
    )


def test_a_refusal_lists_each_wrong_field_on_a_line(plane, run):
    errors = {"action": {"type": ["One of script is needed."]}, "tags": ["Too many."]}
    plane.answers["POST", "/jobs"] = [problem(400, "invalid", "The request is not valid.", errors=errors)]
    code, _, err = run("submit", "true")
    lines = ["The request is not valid.", "  action.type: One of script is needed.", "  tags: Too many."]
    assert (code, err.splitlines()) == (3, lines)
    plane.answers["GET", "/servers"] = [problem(401, "token_unknown", "This token is not known.")]
    assert run("servers")[::2] == (3, "The token was refused: This token is not known.\n")


def test_no_control_plane_is_4_and_no_address_is_2(run, monkeypatch):
    code, _, err = run("jobs", "--url", "http://127.0.0.1:1", "--retry-for", "0")
    assert code == 4 and err.startswith("No control plane answers at http://127.0.0.1:1/api/v1")
    assert "HTTPConnection" not in err
    for url in ("control.example", "http://127.0.0.1:99999", "http://", "http://[::1"):
        code, _, err = run("jobs", "--url", url)
        assert code == 2 and err.startswith(f"{url!r} is not the address of a control plane: "), url
    monkeypatch.delenv("CONTROLPLANE_URL")
    code, _, err = run("jobs")
    assert code == 2 and "CONTROLPLANE_URL" in err
    assert run("submit", "--url", "http://127.0.0.1:1")[0] == 2
    code, _, err = run("job", "no-id", "--url", "http://127.0.0.1:1")
    assert code == 2 and "'no-id' is not an id" in err


def test_an_answer_of_another_server_is_named_as_such(plane, run):
    plane.answers["GET", "/jobs"] = [Say(404, "File not found")]
    code, _, err = run("jobs")
    assert (code, err) == (3, "404 Not Found, which is not a response of a control plane\n")


def test_top_ends_without_a_control_plane_at_the_start_but_survives_an_outage(plane, run):
    code, _, err = run("top", "--url", "http://127.0.0.1:1")
    assert code == 4 and err.startswith("No control plane answers at http://127.0.0.1:1/api/v1")
    plane.answers["GET", "/instance"] = [Say(200, INSTANCE), problem(503, "overloaded", "Come again.")]
    code, out, _ = run("top", "--times", "2", "--every", "0.1")
    assert code == 0 and out.endswith("503: Come again.\n")


def test_an_unreadable_file_is_reported_once(run, tmp_path, monkeypatch):
    file = tmp_path / "none"
    assert run("execute", str(file))[::2] == (2, f"{file} cannot be read: No such file or directory\n")
    token = run("jobs", "--token-file", str(file))
    assert token[::2] == (2, f"The token file {file} cannot be read: No such file or directory\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("{"))
    assert run("execute", "-")[2].startswith("Standard input is not JSON: ")
    with pytest.raises(SystemExit):
        run("jobs", "--limit", "-1")


def test_the_instance_is_shown_and_again_by_top(plane, run):
    plane.answers["GET", "/instance"] = [Say(200, INSTANCE)]
    code, out, _ = run("instance")
    assert code == 0 and "2 WORKER RUNNING" in out and "3 RUNNING" in out and "silent for 10 s" in out
    assert "1 of 2 servers alive. worker-2 silent for 4 s." in out
    code, again, _ = run("top", "--times", "2", "--every", "0.1")
    assert code == 0 and again == f"{out}\n{out}"


def test_without_rich_a_terminal_has_plain_tables(plane):
    plane.answers["GET", "/jobs"] = [listed(JOB)]
    code = (
        "import sys; sys.modules['rich.console'] = None; from controlplane.client.__main__ import main; main(['jobs'])"
    )
    environment = {"CONTROLPLANE_URL": plane.url, "CONTROLPLANE_TOKEN": "secret", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and ID in done.stdout


def test_on_a_terminal_a_table_is_drawn_by_rich(plane, run, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    plane.answers["GET", "/jobs"] = [listed(JOB)]
    assert ID in run("jobs")[1]


def test_who_has_read_enough_ends_the_command_quietly(plane):
    plane.answers["GET", "/jobs"] = [listed(*[JOB] * 3000)]
    environment = {"CONTROLPLANE_URL": plane.url, "CONTROLPLANE_TOKEN": "secret", "PATH": "/usr/bin:/bin"}
    command = f"{sys.executable} -m controlplane.client jobs --json --limit 0 | head -n 1"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.count("\n") == 1 and done.stderr == ""


BATCH = {
    "id": ID, "operation": "cancel_job", "subject": "job", "state": "COMPLETED", "chosen": "state PENDING",
    "actor": "operator:me", "note": "n", "total": 2, "done": 1, "refused": 1, "pending": 0, "stopped_by": "",
    "created_at": "2030-01-01T00:00:00Z", "finished_at": "2030-01-01T00:00:05Z",
    "refusals": [{"reason": "it has ended", "items": 1}], "next": None,
    "items": [{"subject": OTHER, "outcome": "REFUSED", "reason": "it has ended", "result": None, "at": None}],
}  # fmt: skip


def test_a_batch_is_begun_on_what_a_filter_matches_and_waited_for(plane, run):
    plane.answers["POST", "/batches"] = [Say(201, {**BATCH, "state": "RUNNING"})]
    plane.answers["GET", f"/batches/{ID}"] = [Say(200, {**BATCH, "state": "RUNNING"}), Say(200, BATCH)]
    code, out, _ = run(
        "begin-batch", "cancel_job", "--filter", "state=PENDING", "--filter", "tag=gpu", "--note", "n", "--wait"
    )
    assert plane.calls[0].body == {
        "operation": "cancel_job", "filter": {"state": "PENDING", "tag": "gpu"}, "note": "n",
    }  # fmt: skip
    assert plane.calls[0].headers["Idempotency-Key"]
    assert code == 1, "one of them was refused"
    assert "it has ended" in out and OTHER in out


def test_a_batch_on_ids_is_begun_without_waiting(plane, run):
    plane.answers["POST", "/batches"] = [Say(201, BATCH)]
    assert run("begin-batch", "resubmit_job", ID, OTHER, "--force", "--note", "n")[:2] == (0, f"{ID}\n")
    body = {"operation": "resubmit_job", "ids": [ID, OTHER], "force": True, "note": "n"}
    assert plane.calls[0].body == body


@pytest.mark.parametrize(
    "words", [[], [ID, "--filter", "state=FAILED"], ["--filter", "FAILED"]], ids=["none", "both", "no pair"]
)
def test_a_batch_takes_either_ids_or_a_filter(plane, run, words):
    code, _, err = run("begin-batch", "cancel_job", *words, "--note", "n")
    assert code == 2 and err
    assert not plane.calls


def test_a_batch_accepts_a_deadline_of_zero_seconds(plane, run):
    """Check that 0 is sent. Without it, each server would get its grace period."""
    plane.answers["POST", "/batches"] = [Say(201, {"id": ID})]
    run("begin-batch", "drain_server", ID, "--deadline-seconds", "0", "--note", "n")
    assert plane.calls[0].body == {"operation": "drain_server", "ids": [ID], "note": "n", "deadline_seconds": 0}


def test_a_batch_whose_filter_is_named_twice_is_refused(plane, run):
    """Refuse it, because only the last tag would apply, and the action would hit more jobs than intended."""
    code, _, err = run("begin-batch", "cancel_job", "--filter", "tag=gpu", "--filter", "tag=red", "--note", "n")
    assert (code, plane.calls) == (2, []) and "once" in err


def test_batches_are_listed_and_stopped(plane, run):
    plane.answers["GET", "/batches"] = [listed(BATCH)]
    plane.answers["POST", f"/batches/{ID}/stop"] = [Say(200, {**BATCH, "state": "STOPPED"})]
    code, out, _ = run("batches", "--state", "RUNNING")
    assert (code, plane.calls[0].query) == (0, {"state": ["RUNNING"], "limit": ["50"]})
    assert out.splitlines()[1].split()[:2] == [ID, "cancel_job"]
    assert run("stop-batch", ID)[:2] == (0, f"{ID} STOPPED\n")


def test_queues_are_listed_with_their_jobs_and_workers(plane, run):
    queue = {"namespace": "default", "tags": ["gpu", "script"], "waiting": 3, "parked": 0, "scheduled": 1, "running": 2,
             "oldest_at": None, "workers": 4}  # fmt: skip
    plane.answers["GET", "/queues"] = [listed(queue)]
    code, out, _ = run("queues", "--tag", "gpu")
    assert code == 0 and "gpu script" in out


HOLD = {
    "id": ID, "of": {"tag": "gpu"}, "namespace": None, "mode": "refuse", "note": "n", "by": "operator:o", "parked": 3,
    "created_at": "2030-01-01T00:00:00Z", "ends_at": None,
}  # fmt: skip


def test_work_is_held_listed_and_released(plane, run):
    plane.answers["POST", "/holds"] = [Say(201, HOLD)]
    plane.answers["GET", "/holds"] = [listed(HOLD)]
    plane.answers["DELETE", f"/holds/{ID}"] = [Say(204, None)]
    code, out, _ = run("hold", "--tag", "gpu", "--refuse", "--for", "1h", "--note", "n")
    assert code == 0 and "tag gpu" in out
    assert "tag gpu" in run("holds")[1]
    assert run("release-hold", ID)[:2] == (0, f"released: {ID}\n")


@pytest.mark.parametrize("words", [(), ("--tag", "a", "--queue", "b")])
def test_a_hold_names_exactly_one_kind_of_work(words, run):
    code, _, err = run("hold", *words)
    assert code == 2 and "Give exactly one of --action, --tag" in err
