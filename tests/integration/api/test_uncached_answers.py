"""Test that every API response has `Cache-Control: no-store`, so that no browser or proxy stores it."""

import pytest

from controlplane.core.problems import build_unavailable_response, server_error
from controlplane.serving.answers import JSON, refusal
from liveness.errors import TokenMissing
from tests.integration.api.test_access import LINES, Things

CALLS = [line for line in LINES if line.address.startswith(("api/v1", "metrics"))]


@pytest.fixture
def things(api, worker, submit):
    return Things(api, worker, submit)


@pytest.mark.parametrize("caller", ["session", "token", "nobody"])
def test_each_call_forbids_to_store_its_response_for_all_callers(things, caller):
    wrong = []
    for line in CALLS:
        identities = {
            "session": {"session": things.root},
            "token": {"bearer": things.bearers.get(line.who.split()[0])},
            "nobody": {},
        }
        for method in line.tried:
            answer = things.answer(method, things.path(line.address), **identities[caller])
            if answer.headers.get("Cache-Control") != "no-store":
                wrong.append((method, line.address, answer.status_code, answer.headers.get("Cache-Control")))
    assert wrong == []


def test_answers_that_no_view_gives_are_not_stored_either(things, rf):
    with_wrong_name = things.client.get("/api/v1/jobs", headers={"Host": "elsewhere.example"})
    assert with_wrong_name.status_code == 400
    unavailable = build_unavailable_response(Exception("gone"), lambda body, **options: options, is_unknown=False)
    answers = [
        things.client.get("/api/v1/nowhere").headers,
        with_wrong_name.headers,
        server_error(rf.get("/api/v1/jobs")).headers,
        unavailable["headers"],
        dict(refusal(TokenMissing()).headers),
        dict(JSON),
    ]
    assert [dict(headers).get("Cache-Control") for headers in answers] == ["no-store"] * len(answers)
