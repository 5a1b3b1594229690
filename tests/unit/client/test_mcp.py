"""MCP server: the operations of the API as tools, spoken to by a real MCP client over stdio."""

import json
import os
import sys

import anyio
import pytest
from rest_framework.renderers import JSONRenderer

from controlplane import openapi_views
from controlplane.client import mcp
from tests.support.processes import ROOT
from tests.support.scripted import Say, problem


@pytest.fixture(scope="module")
def document():
    return json.loads(openapi_views.document(JSONRenderer, "")[0])


@pytest.fixture
def speak(plane, document):
    """Return a function that starts the program and runs a conversation with it."""
    # Their import takes a second, and each worker of pytest-xdist imports all modules of tests.
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    plane.answers["GET", "/api/schema"] = [Say(200, document)]

    def speak(conversation, *options):
        async def run():
            env = {**os.environ, "CONTROLPLANE_URL": plane.url, "CONTROLPLANE_TOKEN": "secret"}
            program = StdioServerParameters(
                command=sys.executable, args=["-m", "controlplane", "mcp", *options], env=env, cwd=ROOT
            )
            async with stdio_client(program) as streams, ClientSession(*streams) as session:
                await session.initialize()
                return await conversation(session)

        return anyio.run(run)

    return speak


def test_each_operation_but_those_of_workers_is_a_tool(document):
    tools = {operation.name: operation for operation in mcp.read_operations(document)}
    assert tools.keys() >= {"jobs_list", "jobs_get", "jobs_create", "jobs_cancel", "instance_get", "servers_drain"}
    paths = {operation.path for operation in tools.values()}
    assert not paths & {"/servers/{server}/heartbeat", "/servers/{server}/claims", "/servers/{server}/reports"}
    count = sum(len(methods) for methods in document["paths"].values())
    assert len(tools) == len(mcp.read_operations(document)) > count / 2


def test_the_schema_of_a_tool_holds_all_that_it_refers_to(document):
    for operation in mcp.read_operations(document):
        assert set(mcp.find_names(operation.schema)) <= set(operation.schema.get("$defs", {})), operation.name


def test_without_the_option_all_tools_only_read(speak):
    async def conversation(session):
        return (await session.list_tools()).tools

    tools = speak(conversation)
    assert "jobs_list" in {tool.name for tool in tools}
    assert all(tool.annotations.read_only_hint for tool in tools)


def test_an_acting_tool_is_refused_without_the_option(plane, speak):
    async def conversation(session):
        return await session.call_tool("jobs_cancel", {"job": "1", "body": {"note": "no"}})

    answer = speak(conversation)
    assert answer.is_error and "--allow-actions" in answer.content[0].text
    assert [call.path for call in plane.calls] == ["/api/schema"]


def test_with_the_option_a_tool_acts(plane, speak):
    plane.answers["POST", "/jobs/1/cancel"] = [Say(200, {"id": "1", "state": "CANCELLED"})]

    async def conversation(session):
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert not tools["jobs_cancel"].annotations.read_only_hint
        return await session.call_tool("jobs_cancel", {"job": "1", "body": {"note": "not needed"}})

    answer = speak(conversation, "--allow-actions")
    assert json.loads(answer.content[0].text) == {"id": "1", "state": "CANCELLED"}
    assert plane.calls[-1].body == {"note": "not needed"}


def test_a_reading_tool_returns_the_answer_or_the_error(plane, speak):
    plane.answers["GET", "/jobs"] = [Say(200, {"items": [], "next": None})]
    plane.answers["GET", "/jobs/1"] = [problem(404, "job_unknown", "There is no such job")]

    async def conversation(session):
        return [
            await session.call_tool("jobs_list", {"state": "FAILED"}),
            await session.call_tool("jobs_get", {"job": "1"}),
            await session.call_tool("jobs_get", {}),
        ]

    found, unknown, incomplete = speak(conversation)
    assert json.loads(found.content[0].text)["items"] == []
    assert plane.calls[1].query == {"state": ["FAILED"]}
    assert unknown.is_error and unknown.content[0].text == "There is no such job"
    assert incomplete.is_error and "job" in incomplete.content[0].text
