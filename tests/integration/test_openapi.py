"""The OpenAPI document says what the API does: no answer that it does not tell of, and no 5xx, for any credential."""

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from controlplane.wsgi import application

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore")]

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
ROLES = ["worker", "client", "viewer", "operator"]


@pytest.fixture
def document(credentials):
    # As Django's test client does: a request must not close the connection that holds the test's transaction.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield schemathesis.openapi.from_wsgi("/api/schema", application)
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def credentials(api, worker):
    one = worker()
    return {role: (api(role).token, None) for role in ROLES} | {"none": (None, None), "server": (one.token, one.id)}


def tried(operation, headers, server, examples):
    """The status codes of some calls of an operation, each answer held to the document."""
    answers = set()

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def try_it(case):
        if server and "server" in (case.path_parameters or {}):
            case.path_parameters["server"] = server
        answer = case.call(headers=headers)
        answers.add(answer.status_code)
        # What a job asks for with require_worker is no fault of ours, and documented.
        deserted = answer.status_code == 503 and "filter" in answer.json()
        case.validate_response(
            answer, checks=[check for check in CHECKS if check != not_a_server_error or not deserted]
        )

    try_it()
    return answers


def calls_of(client):
    paths = client.get("/api/schema?format=json").json()["paths"]
    return {(method.upper(), path): call for path, calls in paths.items() for method, call in calls.items()}


def test_each_call_has_a_group_a_summary_and_the_role_that_it_needs(client, db):
    calls = calls_of(client)
    assert {call["tags"][0] for call in calls.values()} == {
        "Jobs", "Executions", "Triggers", "Bulk actions",
        "Servers", "Workers and other servers", "Recovery", "Instance",
    }  # fmt: skip
    for name, call in calls.items():
        assert 0 < len(call["summary"]) <= 160, name
        assert "Who may call: " in call["description"], name

    def who(method, path):
        return (
            calls[method, f"/api/v1/{path}"]["description"].partition("Who may call: ")[2].partition(";")[0].strip(".")
        )

    assert who("POST", "jobs") == "a token of the role client or operator"
    assert who("GET", "servers") == "a token of the role operator or viewer"
    assert who("POST", "servers") == "a token of the role worker"
    assert who("POST", "servers/{server}/drain") == "a token of the role operator"
    assert who("POST", "servers/{server}/claims").startswith("the server in the address")


def test_null_is_one_of_anything(client, db):
    shown = client.get("/api/schema?format=json").json()["components"]["schemas"]["JobAnswer"]["properties"]
    assert "oneOf" not in shown["checkpoint"] and "type" not in shown["checkpoint"]


def test_the_examples_of_the_document_are_taken_as_they_stand(client, api):
    roles = {"jobs": "client", "executions": "client", "triggers": "operator", "servers": "worker"}
    calls = calls_of(client)
    for name, role in roles.items():
        content = calls["POST", f"/api/v1/{name}"]["requestBody"]["content"]["application/json"]
        for example in content["examples"].values():
            answer = api(role).post(f"/{name}", example["value"])
            assert answer.status_code == 201, (name, answer.json())


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [*ROLES, "server", "none"])
def test_no_answer_is_undocumented_or_a_fault_for_the_credential(document, credentials, kind):
    token, server = credentials[kind]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answers = set()
    for operation in (result.ok() for result in document.get_all_operations()):
        if operation.path.startswith("/api/v1"):
            first = tried(operation, headers, server, 3)
            # Whom a call is refused to, it is refused to whatever he says.
            answers |= first if first <= {401, 403} else tried(operation, headers, server, 12)
    assert answers & ({401} if kind == "none" else {200, 201, 400}), answers
