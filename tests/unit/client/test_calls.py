"""Calls of the client: with its token, retried, counted once, and with helpful errors."""

import datetime
import logging
import threading
import uuid

import pytest

from controlplane.client import Client, ControlPlaneError, Refused, Unreachable, session
from controlplane.client.jobs import in_batches
from tests.support.scripted import Say, problem

JOB = {"id": str(uuid.uuid4()), "state": "PENDING", "finished_at": None, "left_out": []}
PATH = f"/jobs/{JOB['id']}"
SCRIPT = {"type": "script", "command": "date"}


def keys(plane):
    return [call.headers.get("Idempotency-Key") or (call.body or {}).get("key") for call in plane.calls]


def test_a_submission_without_an_answer_is_tried_again_with_the_same_key(plane, client):
    plane.answers["POST", "/jobs"] = [None, problem(503, "database_unavailable"), Say(200, JOB)]
    assert client.submit(SCRIPT, {"n": 1}, tags=["gpu"]) == JOB
    assert len(plane.calls) == 3 and len(set(keys(plane))) == 1 and keys(plane)[0]
    assert plane.calls[0].body == {"key": keys(plane)[0], "action": SCRIPT, "payload": {"n": 1}, "tags": ["gpu"]}
    assert plane.calls[0].headers["Authorization"] == "Bearer secret"


def test_each_submission_has_a_key_of_its_own_unless_it_is_given_one(plane, client):
    plane.answers["POST", "/jobs"] = [Say(201, JOB)]
    client.submit(SCRIPT)
    client.submit(SCRIPT)
    client.submit(SCRIPT, key="mine")
    first, second, third = keys(plane)
    assert first != second and third == "mine"


def test_a_resubmission_and_a_rerun_are_tried_again_with_the_same_key(plane, client):
    plane.answers["POST", f"{PATH}/resubmit"] = [None, Say(201, JOB)]
    plane.answers["POST", f"/executions/{JOB['id']}/rerun"] = [None, Say(201, JOB)]
    client.resubmit(JOB, note="why")
    client.rerun_execution(JOB)
    first, second, third, fourth = keys(plane)
    assert first and first == second and third and third == fourth and first != third


def test_retry_after_is_kept_to_and_never_undercut(plane, client, pauses):
    plane.answers["GET", PATH] = [problem(429, "too_many_calls", retry_after="7"), Say(200, JOB)]
    assert client.job(JOB) == JOB
    assert len(pauses) == 1 and 7 <= pauses[0] <= 8


def test_without_one_it_waits_anything_up_to_the_doubled_backoff(plane, client, pauses, monkeypatch, caplog):
    monkeypatch.setattr("controlplane.agent.api.backoff.random.uniform", lambda low, high: high)
    plane.answers["GET", PATH] = [*[None] * 5, Say(200, JOB)]
    with caplog.at_level(logging.WARNING, "controlplane.client"):
        client.job(JOB)
    assert pauses == [1, 2, 4, 8, 10]
    assert [line.rpartition(" in ")[2] for line in caplog.messages] == ["1.0 s", "2.0 s", "4.0 s", "8.0 s", "10.0 s"]


def test_a_token_that_would_travel_in_clear_is_warned_of_in_the_log(caplog, capsys):
    Client("http://192.0.2.7", "secret")  # an address for documentation, which no host has
    Client("https://192.0.2.7", "secret")
    assert len(caplog.messages) == 1 and "sent unencrypted to http://192.0.2.7" in caplog.messages[0]
    assert capsys.readouterr().out == ""


def test_it_gives_up_when_the_next_try_would_be_too_late_and_names_the_address(plane, pauses):
    plane.answers["GET", PATH] = [problem(503, "overloaded", "Come again.", retry_after="61")]
    with pytest.raises(Unreachable, match="Come again") as raised:
        Client(plane.url, "secret", retry_for=60).job(JOB)
    assert (raised.value.status, raised.value.code, len(plane.calls)) == (503, "overloaded", 1)
    with pytest.raises(Unreachable, match=r"No control plane answers at http://127\.0\.0\.1:1/api/v1"):
        Client("http://127.0.0.1:1", "secret", retry_for=0).job(JOB)


def test_a_refusal_is_raised_at_once_with_all_its_fields(plane, client):
    errors = {"action": {"type": ["One of script is needed here."]}}
    plane.answers["POST", "/jobs"] = [problem(400, "invalid", "Not valid.", errors=errors)]
    with pytest.raises(Refused, match="400 invalid: Not valid") as raised:
        client.submit({"type": "?"})
    refused = raised.value
    assert (refused.status, refused.code, refused.detail, refused.errors) == (400, "invalid", "Not valid.", errors)
    assert isinstance(refused, ControlPlaneError) and len(plane.calls) == 1


def test_a_required_worker_that_is_missing_fails_the_call_at_once(plane, client):
    plane.answers["POST", "/jobs"] = [problem(503, "no_fresh_workers", "No workers", retry_after="2")]
    with pytest.raises(Refused, match="503 no_fresh_workers: No workers"):
        client.submit(SCRIPT, require_worker=True)
    assert len(plane.calls) == 1


def test_a_cancellation_whose_answer_was_lost_is_no_refusal(plane, client):
    plane.answers["POST", f"{PATH}/cancel"] = [None, problem(409, "job_ended")]
    plane.answers["GET", PATH] = [Say(200, {**JOB, "state": "CANCELLED"})]
    assert client.cancel(JOB)["state"] == "CANCELLED"
    plane.answers["POST", f"{PATH}/cancel"] = [problem(409, "job_ended")]
    with pytest.raises(Refused):
        client.cancel(JOB)
    plane.answers["POST", f"{PATH}/cancel"] = [None, problem(409, "job_ended")]
    plane.answers["GET", PATH] = [Say(200, {**JOB, "state": "COMPLETED"})]
    with pytest.raises(Refused):
        client.cancel(JOB)


def test_a_cordon_whose_answer_was_lost_is_no_refusal(plane, client):
    path = f"/servers/{JOB['id']}"
    plane.answers["POST", f"{path}/cordon"] = [None, problem(409, "already_cordoned")]
    plane.answers["GET", path] = [Say(200, {"id": JOB["id"], "cordoned": True})]
    assert client.cordon(JOB["id"], "disk")["cordoned"]
    assert [call.body for call in plane.calls[:2]] == [{"note": "disk"}] * 2


def test_a_list_continues_at_next_while_it_is_read(plane, client):
    pages = {None: {"items": [1, 2], "next": "a"}, "a": {"items": [], "next": "b"}, "b": {"items": [3], "next": None}}
    plane.answers["GET", "/jobs"] = lambda call: Say(200, pages[call.query.get("cursor", [None])[0]])
    jobs = client.jobs(state="FAILED", page=2)
    assert plane.calls == []
    assert next(jobs) == 1 and len(plane.calls) == 1
    assert list(jobs) == [2, 3]
    assert [call.query["state"] + call.query["limit"] for call in plane.calls] == [["FAILED", "2"]] * 3


def test_many_jobs_go_in_as_many_calls_as_they_need_and_come_back_in_order(plane, client):
    plane.answers["POST", "/jobs"] = lambda call: Say(201, {"items": [job["payload"] for job in call.body]})
    jobs = [{"action": SCRIPT, "payload": n} for n in range(1500)]
    assert client.submit_many(jobs) == list(range(1500))
    assert [len(call.body) for call in plane.calls] == [1000, 500]
    assert len({job["key"] for call in plane.calls for job in call.body}) == 1500


def test_a_batch_has_no_more_bytes_than_a_body_may_have():
    batches = list(in_batches({"payload": "x" * 300_000} for _ in range(4)))
    assert [len(batch) for batch in batches] == [3, 1]


def test_times_have_a_time_zone(plane, client):
    plane.answers["POST", "/jobs"] = [Say(201, JOB)]
    client.submit(SCRIPT, available_at=datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC))
    assert plane.calls[0].body["available_at"] == "2030-01-01T00:00:00+00:00"
    with pytest.raises(TypeError, match="no time zone"):
        client.submit(SCRIPT, available_at=datetime.datetime(2030, 1, 1))


def test_what_is_no_id_becomes_no_part_of_an_address(client):
    with pytest.raises(ValueError, match="is not an id"):
        client.job("../servers")


def test_the_address_and_the_token_come_from_the_environment_or_a_file(tmp_path, monkeypatch, plane, pauses):
    monkeypatch.delenv("CONTROLPLANE_URL", raising=False)
    monkeypatch.delenv("CONTROLPLANE_TOKEN", raising=False)
    file = tmp_path / "token"
    file.write_text("of a file\n")
    with pytest.raises(ValueError, match="CONTROLPLANE_URL"):
        Client(token="secret")
    with pytest.raises(ValueError, match="CONTROLPLANE_TOKEN"):
        Client(plane.url)
    with pytest.raises(ValueError, match="cannot be read"):
        Client(plane.url, token_file=tmp_path / "none")
    with pytest.raises(ValueError, match="not both"):
        Client(plane.url, "secret", token_file=file)
    with pytest.raises(ValueError, match="is not the address"):
        Client("control.example", "secret")
    monkeypatch.setenv("CONTROLPLANE_URL", plane.url)
    monkeypatch.setenv("CONTROLPLANE_TOKEN", "of the environment")
    plane.answers["GET", PATH] = [Say(200, JOB)]
    Client().job(JOB)
    Client(token_file=file).job(JOB)
    sent = [call.headers["Authorization"] for call in plane.calls]
    assert sent == ["Bearer of the environment", "Bearer of a file"]


def test_a_call_that_nobody_waits_for_any_more_goes_no_further(plane):
    stop = threading.Event()
    stop.set()
    token = session.STOP.set(stop)
    try:
        with pytest.raises(session.Stopped):
            Client(plane.url, "secret").job(JOB)
    finally:
        session.STOP.reset(token)
    assert plane.calls == []
