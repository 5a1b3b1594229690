"""Test `GET /servers`: its content, order and pages."""

import pytest

from liveness.models import Server


@pytest.fixture
def listed(api, worker):
    """Return the names of the servers in the response of `GET /servers`."""
    worker(name="alpha", cluster="east", hostname="box-1", tags=["gpu"])
    worker(name="beta", cluster="west", hostname="box-2").beat(state="TERMINATING")
    worker(name="gamma", cluster="west", tags=["gpu", "python"])
    viewer = api("viewer")
    return lambda query="": [server["name"] for server in viewer.get(f"/servers{query}").json()["items"]]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["gamma", "beta", "alpha"]),
        ("?cluster=west", ["gamma", "beta"]),
        ("?state=TERMINATING", ["beta"]),
        ("?type=WORKER&tag=gpu", ["gamma", "alpha"]),
        ("?type=INDEXER", []),
        ("?search=LPH", ["alpha"]),
        ("?search=box-", ["beta", "alpha"]),
        ("?cluster=west&tag=gpu&search=a", ["gamma"]),
        ("?search=%25", []),
    ],
)
def test_servers_are_listed_latest_first_and_by_what_is_asked(listed, query, names):
    assert listed(query) == names


def test_a_server_is_found_by_the_beginning_of_its_id(listed):
    server = Server.objects.get(name="beta")
    assert listed(f"?search={str(server.pk).upper()}") == ["beta"]


def test_the_list_is_read_a_page_at_a_time(listed, api):
    viewer, collected, cursor = api("viewer"), [], ""
    while True:
        page = viewer.get(f"/servers?limit=1{cursor}").json()
        collected += [server["name"] for server in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert collected == ["gamma", "beta", "alpha"]


def test_an_item_of_the_list_is_the_server(listed, api, operator):
    server = Server.objects.get(name="gamma")
    operator("drain", type("One", (), {"id": server.pk}))
    viewer = api("viewer")
    (item,), one = viewer.get("/servers?search=gamma").json()["items"], viewer.get(f"/servers/{server.pk}").json()
    item["next_transition"].pop("at"), one["next_transition"].pop("at")  # computed at each read
    assert item == one


@pytest.mark.parametrize(
    "query", ["?limit=0", "?limit=501", "?limit=x", "?state=ALIVE", "?type=x", "?cursor=1", "?colour=red", "?tag=%00"]
)
def test_what_the_list_does_not_understand_it_refuses(api, query):
    assert api("viewer").get(f"/servers{query}").status_code == 400
