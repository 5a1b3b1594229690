"""Test the OpenAPI document: for all credentials, every response is documented and none is a 5xx."""

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from hypothesis import HealthCheck, given, settings

from controlplane.wsgi import application

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore")]

ROLES = ["worker", "client", "viewer", "operator"]


@pytest.fixture
def document(credentials):
    import schemathesis  # only when it is used, because its import takes a second

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
    """Return the status codes of some calls of an operation, after a check of each response against the document."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

    checks, answers = [not_a_server_error, status_code_conformance, response_schema_conformance], set()

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
        answer = case.call(headers={"Accept-Encoding": "identity", **headers})
        answers.add(answer.status_code)
        # A 503 because of require_worker is no server error, and is documented.
        deserted = answer.status_code == 503 and "filter" in answer.json()
        case.validate_response(
            answer, checks=[check for check in checks if check != not_a_server_error or not deserted]
        )

    try_it()
    return answers


def calls_of(client):
    paths = client.get("/api/schema?format=json").json()["paths"]
    return {(method.upper(), path): call for path, calls in paths.items() for method, call in calls.items()}


def test_each_call_has_a_group_a_summary_and_the_role_that_it_needs(client, db):
    calls = calls_of(client)
    assert {call["tags"][0] for call in calls.values()} == {
        "Jobs", "Executions", "Triggers", "Bulk actions", "Holds", "Queues",
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
    assert who("POST", "servers/{server}/claims").startswith("the server in the URL")


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
            # A caller without access is refused whatever the body is, so few examples are enough.
            answers |= first if first <= {401, 403} else tried(operation, headers, server, 12)
    assert answers & ({401} if kind == "none" else {200, 201, 400}), answers


def test_generators_of_clients_can_read_every_list_of_the_document(client):
    """Generators refuse lists without a schema of their items."""
    document = client.get("/api/schema", headers={"Accept": "application/vnd.oai.openapi+json"}).json()

    def lists(part, path=""):
        if isinstance(part, dict):
            kinds = part.get("type", ())
            if "array" in (kinds if isinstance(kinds, list) else [kinds]) and "items" not in part:
                yield path
            for name, value in part.items():
                yield from lists(value, f"{path}/{name}")
        elif isinstance(part, list):
            for place, value in enumerate(part):
                yield from lists(value, f"{path}/{place}")

    assert [*lists(document)] == []
