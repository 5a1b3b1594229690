"""A worker takes new tokens without a restart: of its server from heartbeats, to register with from its file."""

import pytest

from controlplane.agent.api.client import AgentClient, Refused
from controlplane.agent.api.registration import register_server
from controlplane.agent.command_line import build_parser
from controlplane.agent.options import read_options
from tests.support.standin import Refuse, eventually


def test_a_token_in_an_answer_to_a_heartbeat_is_used_from_then_on(plane, agent):
    agent()
    eventually(lambda: plane.count("heartbeat") > 1)
    plane.heartbeat = {"token": "of the new key"}
    eventually(lambda: "of the new key" in plane.tokens)
    plane.heartbeat = {}
    beats = plane.count("heartbeat")
    eventually(lambda: plane.count("heartbeat") > beats + 3)  # what was under way has arrived
    plane.tokens.clear()
    attempt = plane.submit("true")
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"
    assert plane.tokens == {"of the new key"}


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "token"
    file.write_text("first")
    return file


def options_of(plane, file):
    return read_options(build_parser().parse_args(["--url", plane.url, "--name", "n", "--token-file", str(file)]))


def test_the_file_is_read_at_each_try_to_register(plane, file):
    tries = []

    def servers(_):
        tries.append(plane.tokens.copy())
        if len(tries) == 1:
            raise Refuse(503, "overloaded")

    plane.script["servers"] = servers
    options = options_of(plane, file)
    server = register_server(
        AgentClient(plane.url), options.read_token, options.description(), lambda _: file.write_text("second")
    )
    assert server.id in plane.registrations and plane.tokens == {"first", "second"}


def test_a_token_that_is_refused_while_it_is_replaced_is_tried_no_more(plane, file):
    def servers(_):
        if plane.tokens == {"first"}:
            file.write_text("second")
            raise Refuse(401, "token_revoked")

    plane.script["servers"] = servers
    options = options_of(plane, file)
    assert register_server(AgentClient(plane.url), options.read_token, options.description(), lambda _: None)
    assert plane.tokens == {"first", "second"}


def test_a_token_that_is_refused_and_was_not_replaced_ends_the_start(plane, file):
    def servers(_):
        raise Refuse(401, "token_revoked")

    plane.script["servers"] = servers
    options = options_of(plane, file)
    with pytest.raises(Refused, match="token_revoked"):
        register_server(AgentClient(plane.url), options.read_token, options.description(), lambda _: None)


def test_a_file_that_cannot_be_read_any_more_leaves_the_token_of_the_start(plane, file):
    options = options_of(plane, file)
    file.unlink()
    assert options.read_token() == "first"
