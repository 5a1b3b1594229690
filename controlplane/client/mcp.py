"""MCP server over stdio: the operations of the API as tools for a language model. Needs the extra `mcp`.

The tools are made from the OpenAPI document of the control plane, so they fit its version. Calls of workers are left
out.
"""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from controlplane.agent.api.client import API, ControlPlaneError, Refused
from controlplane.agent.version import VERSION
from controlplane.client.asynchronous import Client
from controlplane.client.failures import USAGE, complain, explain
from controlplane.client.output import Output

NOT_INSTALLED = "The MCP server needs the package mcp: run `pip install 'controlplane[mcp]'`."
FOR_WORKERS = "Workers and other servers"
"""Group of the calls that only workers make. POST /servers is also such a call, although it is in another group."""
KEY = "Idempotency-Key"
INSTRUCTIONS = (
    "Tools of a control plane for workers and jobs. instance_get shows whether all is well. jobs_list and servers_list"
    " find things, and their items have ids for the other tools."
)
REFUSED = "{} changes something, and this MCP server only reads. `controlplane mcp --allow-actions` allows such tools."
BODY = "body"


@dataclass(frozen=True)
class ApiTool:
    """One call of the API, as a tool."""

    name: str
    method: str
    path: str
    description: str
    schema: dict[str, Any]
    in_query: frozenset[str] = field(default_factory=frozenset)

    @property
    def is_reading(self) -> bool:
        return self.method == "GET"


def read_operations(document: dict[str, Any]) -> list[ApiTool]:
    """Return the operations of an OpenAPI document, without those of workers."""
    return [
        build_operation(document, path.removeprefix(API), method.upper(), described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
        if FOR_WORKERS not in described.get("tags", []) and (method, path) != ("post", f"{API}/servers")
    ]


def build_operation(document: dict[str, Any], path: str, method: str, described: dict[str, Any]) -> ApiTool:
    properties: dict[str, Any] = {}
    required = []
    in_query = set()
    for parameter in described.get("parameters", []):
        name = parameter["name"]
        if name == "format" or (parameter["in"] == "header" and name != KEY):
            continue
        shown = "idempotency_key" if name == KEY else name
        properties[shown] = {**parameter["schema"], "description": parameter.get("description", "")}
        if parameter.get("required"):
            required.append(shown)
        if parameter["in"] == "query":
            in_query.add(name)
    content = described.get("requestBody", {}).get("content", {}).get("application/json")
    if content is not None:
        properties[BODY] = content["schema"]
        if described["requestBody"].get("required"):
            required.append(BODY)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    schema = move_references(schema)
    if definitions := collect_definitions(schema, document["components"]["schemas"]):
        schema["$defs"] = definitions
    return ApiTool(
        name_tool(described["operationId"]), method, path, described.get("description", ""), schema, frozenset(in_query)
    )


def name_tool(operation_id: str) -> str:
    """Return the name of a tool: `jobs_list`, `jobs_get`, `jobs_create`, `jobs_cancel`."""
    name = re.sub(r"^(api_)?v1_", "", operation_id).replace("__", "_")
    name = re.sub(r"_retrieve$", "_get", name).replace("_partial_update", "_change")
    return re.sub(r"^(\w+?_\w+)_create$", r"\1", name)


def move_references(value: Any) -> Any:
    """Return the schema with references to its own `$defs` instead of to the document."""
    if isinstance(value, dict):
        return {
            name: item.replace("#/components/schemas/", "#/$defs/") if name == "$ref" else move_references(item)
            for name, item in value.items()
            if name != "discriminator"
        }
    return [move_references(item) for item in value] if isinstance(value, list) else value


def collect_definitions(schema: Any, components: dict[str, Any]) -> dict[str, Any]:
    """Return the components that a schema refers to, directly or through other components."""
    found: dict[str, Any] = {}
    waiting = list(find_names(schema))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = move_references(components[name])
            waiting += find_names(found[name])
    return found


def find_names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference.rpartition("/")[2]
        schema = list(schema.values())
    if isinstance(schema, list):
        for item in schema:
            yield from find_names(item)


def read_document(client: Client) -> dict[str, Any]:
    """Return the OpenAPI document of the control plane."""
    return client.call("GET", "/../schema", query={"format": "json"})


def make_call(client: Client, operation: ApiTool, arguments: dict[str, Any]) -> Any:
    """Make the API call of a tool and return its response. Raise ValueError if a part of the path is missing."""
    path = operation.path
    for name in re.findall(r"{(\w+)}", path):
        if arguments.get(name) in (None, ""):
            raise ValueError(f"{operation.name} needs {name}")
        path = path.replace(f"{{{name}}}", quote(str(arguments[name]), safe=""))
    query = {name: arguments[name] for name in operation.in_query if name in arguments}
    return client.call(operation.method, path, arguments.get(BODY), query=query, key=arguments.get("idempotency_key"))


def serve(client: Client, given: Namespace, out: Output) -> int:
    """Serve MCP on standard input and output until the input ends. Return the exit code."""
    try:
        from mcp import types
        from mcp.server.lowlevel.server import Server
        from mcp.server.stdio import stdio_server
    except ModuleNotFoundError:
        return complain(NOT_INSTALLED, USAGE)
    import anyio

    operations = {operation.name: operation for operation in read_operations(read_document(client))}
    offered = [operation for operation in operations.values() if operation.is_reading or given.allow_actions]

    async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=operation.name,
                    description=operation.description,
                    input_schema=operation.schema,
                    annotations=types.ToolAnnotations(
                        read_only_hint=operation.is_reading,
                        destructive_hint=not operation.is_reading,
                        open_world_hint=False,
                    ),
                )
                for operation in offered
            ]
        )

    async def call_tool(context: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        operation = operations.get(parameters.name)
        try:
            if operation is None:
                raise ValueError(f"There is no tool {parameters.name!r}")
            if operation not in offered:
                raise ValueError(REFUSED.format(operation.name))
            answer = await anyio.to_thread.run_sync(make_call, client, operation, parameters.arguments or {})
        except (ControlPlaneError, ValueError) as error:
            text = explain(error) if isinstance(error, Refused) else str(error)
            return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
        text = json.dumps(answer, ensure_ascii=False)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    server: Any = Server(
        "controlplane", version=VERSION, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )

    async def run() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)
    return 0
