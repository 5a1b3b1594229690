"""Test worker tokens: what they may register, and that their servers never count as the control plane's own."""

import uuid

import pytest
from django.core.management import CommandError, call_command

from jobs.services.liveness_check import check_liveness
from liveness.models import ApiToken, Brake, Server, ServerEvent
from liveness.services.presence import Presence
from liveness.states import ServerType
from tests.support.http import Caller, Worker


def token(capsys, *words):
    call_command("create_token", "--role", "worker", *words, "a fleet")
    return Caller(capsys.readouterr().out.strip())


@pytest.fixture
def bound(db, capsys):
    """Make a worker token with bounds: `bound("--tags", "gpu")`."""
    return lambda *words: token(capsys, *words)


def register(caller, **fields):
    return caller.post("/servers", {"type": "WORKER", "name": "w", "instance_id": str(uuid.uuid4()), **fields})


@pytest.mark.parametrize(
    ("words", "good", "bad", "field"),
    [
        (["--types", "WORKER,INDEXER"], {"type": "INDEXER"}, {"type": "EXECUTOR"}, "type"),
        (["--tags", "gpu,script"], {"tags": ["gpu"]}, {"tags": ["gpu", "billing"]}, "tags"),
        (["--cluster", "north"], {"cluster": "north"}, {}, "cluster"),
    ],
)
def test_a_token_registers_only_what_it_is_bound_to(bound, words, good, bad, field):
    caller = bound(*words)
    assert register(caller, **good).status_code == 201
    answer = register(caller, **bad)
    assert (answer.status_code, answer.json()["code"], [*answer.json()["errors"]]) == (403, "token_bound", [field])
    assert Server.objects.count() == 1


def test_the_refusal_names_every_limit_of_a_token_that_is_exceeded(bound):
    answer = register(bound("--types", "INDEXER", "--tags", "a", "--cluster", "north"), tags=["b"]).json()
    assert set(answer["errors"]) == {"type", "tags", "cluster"}
    assert "of the cluster north, not of default" in answer["detail"]


def test_a_claim_is_held_to_the_tags_of_the_token(bound, submit, clock):
    secret = submit(tags=["billing"])
    one = Worker.register(bound("--tags", "script,python"), tags=["script", "python"]).running()
    assert one.claim() == []
    open_to_it = submit()
    assert [attempt["job"]["id"] for attempt in one.claim()] == [open_to_it["id"]]
    assert submit.client.get(f"/jobs/{secret['id']}").json()["state"] == "PENDING"


def test_a_token_has_a_largest_number_of_servers_at_once(bound, clock):
    caller, again = bound("--servers", "2"), str(uuid.uuid4())
    first = Worker.register(caller).running()
    assert register(caller, instance_id=again).status_code == 201
    answer = register(caller)
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_servers")
    assert 0 < int(answer.headers["Retry-After"]) <= 10
    assert register(caller, instance_id=again).status_code == 200, "the same again is found again"
    first.beat(state="TERMINATED_GRACEFULLY")
    assert register(caller).status_code == 201
    assert register(caller).status_code == 429


def test_a_number_of_servers_is_kept_when_many_register_at_once(committed, threads, capsys):
    caller = token(capsys, "--servers", "3")
    answers = [threads(register, Caller(caller.token)) for _ in range(8)]
    assert sorted(answer.result(60).status_code for answer in answers) == [201] * 3 + [429] * 5


@pytest.mark.parametrize(
    "words",
    [
        ["--role", "client", "--tags", "a"],
        ["--role", "worker", "--types", "ROBOT"],
        ["--role", "worker", "--tags", ","],
        ["--role", "worker", "--servers", "0"],
        ["--role", "worker", "--servers", "many"],
    ],
    ids=" ".join,
)
def test_a_bound_that_makes_no_sense_is_refused_and_makes_no_token(db, words):
    with pytest.raises(CommandError):
        call_command("create_token", *words, "x")
    assert not ApiToken.objects.exists()


def test_servers_are_disconnected_with_their_token_and_the_brake_does_not_hold_them(worker, api, clock, capsys):
    registrar = api("worker")
    fleet = [Worker.register(registrar).running() for _ in range(4)]
    others = [worker(name=f"other-{number}", old=True) for number in range(4)]
    call_command("revoke_token", registrar.token[:11])
    assert fleet[0].beat().status_code == 200
    call_command("revoke_token", "--with-servers", registrar.token[:11])
    assert capsys.readouterr().out.splitlines() == ["revoked: 1", "revoked: 0, servers: 4"]
    events = ServerEvent.objects.filter(to_state="DISCONNECTED")
    assert {event.actor.partition(":")[0] for event in events} == {"operator"}
    assert {str(event.server_id) for event in events} == {one.id for one in fleet}
    assert fleet[0].beat().status_code == 401
    clock.advance(46)
    for one in others:
        one.beat()
    check_liveness()
    assert not Brake.objects.exists()
    with pytest.raises(CommandError):
        call_command("revoke_token", registrar.token[:11])


@pytest.mark.parametrize("type", ["WEBSERVER", "EXECUTOR", "SCHEDULER"])
def test_servers_of_a_token_are_drawn_as_external_whatever_their_type(api, admin_client, type, clock):
    own = Presence(ServerType(type), "ours")
    own.beat()
    fake = Worker.register(api("worker"), type=type, name="fake").running()
    for page in ("/admin/instance/", "/admin/instance/servers/"):
        html = admin_client.get(page).content.decode()
        assert html.count(f"<small>{type}</small>") == html.count(f"<small>{type}, external</small>") == 1, page
    overview = admin_client.get("/admin/instance/").content.decode()
    words = {"WEBSERVER": "Web servers", "EXECUTOR": "Executors", "SCHEDULER": "Schedulers"}[type]
    for row in ("Control plane", f"{words}, external"):
        assert f'aria-label="{row}: 1 of 1 alive"' in overview, row
    assert "the control plane itself" in admin_client.get(f"/admin/instance/servers/{own.server.id}/").content.decode()
    assert "token a worker (" in admin_client.get(f"/admin/instance/servers/{fake.id}/").content.decode()
    is_own = {server["name"]: server["own"] for server in api("viewer").get("/servers").json()["items"]}
    assert is_own == {"ours": True, "fake": False}


@pytest.mark.parametrize("type", ["WEBSERVER", "EXECUTOR"])
def test_what_a_token_registered_is_never_a_witness(api, clock, type):
    fake = Worker.register(api("worker"), type=type, name="web@here-1").running()
    for _ in range(3):
        clock.step(10)
        assert fake.beat(claimed=[], running=[]).status_code == 200
        check_liveness()
    assert api("viewer").get("/instance").json()["observed_clock"]["moves"] is False


def test_the_admin_shows_no_instance_id_with_which_a_server_could_be_replaced(admin_client, worker):
    server = Server.objects.get(pk=worker().id)
    for page in (f"liveness/server/{server.pk}/change/", "liveness/server/"):
        html = admin_client.get(f"/admin/{page}").content.decode()
        assert server.name in html
        assert str(server.instance_id) not in html and server.instance_id.hex not in html
