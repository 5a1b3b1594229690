"""The OpenAPI document is built once in a process, and sent only to clients that do not have it."""

import pytest
from drf_spectacular.generators import SchemaGenerator

from controlplane import openapi_views

pytestmark = pytest.mark.django_db


@pytest.fixture
def built(monkeypatch):
    """Return a list with one item for each time the document was built."""
    count, build = [], SchemaGenerator.get_schema

    def get_schema(*args, **kwargs):
        count.append(1)
        return build(*args, **kwargs)

    openapi_views.document.cache_clear()
    monkeypatch.setattr(SchemaGenerator, "get_schema", get_schema)
    yield count
    openapi_views.document.cache_clear()


def test_the_document_is_built_once_for_each_of_its_formats(client, built):
    for address in ("", "?version=2", "?lang=de", "?nobody=knows"):
        assert client.get(f"/api/schema{address}")["Content-Type"].startswith("application/vnd.oai.openapi")
        json = client.get(f"/api/schema{address}", headers={"Accept": "application/json"})
        assert json.json()["openapi"] == "3.1.1"
    assert len(built) == 2


def test_a_client_that_has_the_document_gets_a_304(client):
    first = client.get("/api/schema")
    again = client.get("/api/schema", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    other = client.get("/api/schema", headers={"If-None-Match": first["ETag"], "Accept": "application/json"})
    assert other.status_code == 200
    assert other["ETag"] != first["ETag"]
    assert "Accept" in other["Vary"]
    assert client.head("/api/schema")["ETag"] == first["ETag"]


@pytest.mark.parametrize("method", ["OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE"])
@pytest.mark.parametrize("address", ["/api/schema", "/api/docs", "/api/v1/instance"])
def test_an_unknown_method_is_a_405_with_the_reason(client, address, method):
    answer = client.generic(method, address)
    assert (answer.status_code, answer["Content-Type"]) == (405, "application/problem+json")
    assert answer.json()["code"] == "method_not_allowed"
    assert "GET" in answer["Allow"]
