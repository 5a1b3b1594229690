"""Warnings and errors of the agent's client about the address of the control plane."""

import pytest
from structlog.testing import capture_logs

from controlplane.agent.api.client import AgentClient, Refused, Unreachable
from tests.support.scripted import Say, Scripted, problem


@pytest.mark.parametrize(
    ("url", "in_clear"),
    [
        ("http://127.0.0.1:8000", False),
        ("http://localhost:8000/", False),
        ("http://192.0.2.7:8000", True),  # reserved for documentation
        ("https://192.0.2.7", False),
    ],
)
def test_it_warns_when_tokens_would_travel_in_clear_to_another_machine(url, in_clear):
    with capture_logs() as lines:
        AgentClient(url)
    assert [line["log_level"] for line in lines] == ["warning"] * in_clear
    assert all(f"sent unencrypted to {url}" in line["event"] for line in lines)


def test_an_address_that_sends_its_callers_elsewhere_is_refused_with_that_address(monkeypatch):
    class Moved:
        status, data, reason, headers = 301, b"", "Moved", {"Location": "https://control.example/api/v1/servers"}

    client = AgentClient("http://127.0.0.1:8000")
    monkeypatch.setattr(client._pool, "request", lambda *_, **__: Moved())
    with pytest.raises(Refused, match=r"https://control\.example/api/v1/servers: use that"):
        client.post("/servers", {}, "token")


@pytest.fixture
def scripted():
    plane = Scripted()
    yield plane
    plane.close()


@pytest.mark.parametrize(
    ("answer", "is_another"),
    [
        (problem(503, "database_unavailable"), True),
        (problem(503, "outcome_unknown"), True),
        (Say(502, b"<h1>Bad Gateway</h1>", {"Content-Type": "text/html"}), True),
        (problem(503, "overloaded"), False),
        (problem(429, "too_many_calls"), False),
        (Say(200, {}), False),
    ],
)
def test_after_an_answer_of_a_process_that_is_unwell_another_connection_is_made(scripted, answer, is_another):
    """A load balancer would send the next call over an open connection to the same process."""
    scripted.answers["POST", "/servers"] = [answer, Say(200, {})]
    client = AgentClient(scripted.url)
    for _ in range(2):
        try:
            client.post("/servers", {}, "token")
        except Unreachable:
            continue
    first, second = scripted.calls
    assert (first.connection != second.connection) is is_another


def test_the_code_of_a_refusal_counts_in_a_problem_document_only(scripted):
    body = {"code": "server_not_running", "detail": "no"}
    scripted.answers["POST", "/servers"] = [Say(409, body), problem(409, "server_not_running")]
    client = AgentClient(scripted.url)
    codes = []
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            client.post("/servers", {}, "token")
        codes.append(refused.value.code)
    assert codes == ["", "server_not_running"]
