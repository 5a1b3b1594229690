"""A server's work ends only by its own control plane and by certain codes. Other refusals are retried."""

import json

import pytest

from controlplane.agent.library import Heart
from tests.support.standin import Foreign, Refuse, eventually

PAGE = ("text/html", b"<h1>Sign in first</h1>")
GATEWAY = ("application/json", json.dumps({"code": "server_not_running", "detail": "no such route"}).encode())
NOT_ENDING = [
    *(Foreign(status, *PAGE) for status in (302, 400, 401, 403, 404, 409, 410, 422)),
    *(Foreign(status, *GATEWAY) for status in (401, 403, 404, 409, 410)),
    Refuse(403, "not_your_server"), Refuse(401, "token_missing"), Refuse(403, "forbidden"),
]  # fmt: skip


class Interference:
    """Answers each of some calls once with each of the refusals before the control plane answers."""

    def __init__(self, plane, *calls):
        self.left = {call: list(NOT_ENDING) for call in calls}
        for call in calls:
            plane.script[call] = lambda _, call=call: self.refuse(call)

    def refuse(self, call):
        if self.left[call]:
            raise self.left[call].pop()


def test_refusals_of_others_cost_a_worker_no_job_and_no_report(plane, agent):
    plane.config["timeout_seconds"] = 1.0  # retries come sooner
    worker = agent()
    attempt = plane.submit("sleep 1; echo done")
    eventually(lambda: "STARTED" in plane.events(attempt))
    interference = Interference(plane, "heartbeat", "reports", "claims")
    eventually(lambda: plane.final(attempt))
    later = plane.submit("true")
    assert eventually(lambda: plane.final(later))["event"] == "COMPLETED"
    eventually(lambda: not any(interference.left.values()))
    assert plane.final(attempt)["event"] == "COMPLETED"
    assert len(plane.registrations) == 1 and plane.states() == ["RUNNING"]
    assert worker.process.poll() is None


def test_a_registration_that_others_refuse_is_tried_again(plane, agent):
    answers = [Foreign(403, *PAGE), Foreign(401, *GATEWAY), Foreign(410, *PAGE)]

    def servers(_):
        if answers:
            raise answers.pop()

    plane.script["servers"] = servers
    agent()
    eventually(lambda: plane.count("heartbeat"))
    assert len({body["instance_id"] for call, body in plane.calls if call == "servers"}) == 1


def test_a_heart_stays_the_server_that_it_is(plane):
    interference = Interference(plane, "heartbeat")
    plane.config["timeout_seconds"] = 1.0
    with Heart(plane.url, name="nightly", token="t"):
        eventually(lambda: not interference.left["heartbeat"])
        beats = plane.count("heartbeat")
        eventually(lambda: plane.count("heartbeat") > beats + 1)
    assert len(plane.registrations) == 1


def test_a_token_that_is_not_known_any_more_is_replaced_and_no_job_is_lost(plane, agent):
    """The signing key was replaced: the same instance gets a token of the new one."""
    answers = {}

    def servers(body):
        return answers.setdefault(body["instance_id"], plane._register(body) if not answers else None)

    plane.script["servers"] = servers
    agent()
    attempt = plane.submit("sleep 0.5")
    eventually(lambda: "STARTED" in plane.events(attempt))
    [instance] = answers
    former = answers[instance]
    answers[instance] = {**former, "token": "of the new key"}
    refused = []

    def heartbeat(_):
        if len(refused) < 1:
            refused.append(1)
            raise Refuse(401, "token_unknown")

    plane.script["heartbeat"] = heartbeat
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"
    eventually(lambda: "of the new key" in plane.tokens)
    assert len(plane.registrations) == 1


@pytest.mark.parametrize("code", ["token_revoked", "server_disconnected"])
def test_a_worker_whose_token_was_revoked_finishes_its_jobs_and_ends(plane, agent, code):
    worker = agent()
    attempt = plane.submit("sleep 0.5")
    eventually(lambda: "STARTED" in plane.events(attempt))
    told = []

    def heartbeat(body):
        if not told:
            told.append(1)
            raise Refuse(401 if code == "token_revoked" else 409, code)

    plane.script["heartbeat"] = heartbeat
    assert worker.exits() == 1
    assert plane.final(attempt)["event"] == "COMPLETED"
