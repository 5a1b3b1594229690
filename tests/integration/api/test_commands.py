"""Test the management commands of operators."""

import pytest
from django.core.management import CommandError, call_command

from jobs.services import liveness_check as checking
from liveness.models import ApiToken
from liveness.services import tokens
from tests.support.http import Caller, Worker

JOB = {"action": {"type": "script", "command": "true"}}


@pytest.fixture
def run(db, capsys):
    """Run a command, and return its output."""

    def run(*words):
        call_command(*words)
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("role", ["worker", "client", "viewer", "operator"])
def test_create_token_prints_only_the_token_and_keeps_only_its_digest(run, role):
    text = run("create_token", "--role", role, "for tests").removesuffix("\n")
    token = ApiToken.objects.get()
    assert len(text) >= 43 and not set(text) & set(" \n")
    assert (token.name, token.role, token.expires_at, token.revoked_at) == ("for tests", role, None, None)
    assert text.startswith(token.prefix)
    assert bytes(token.digest) == tokens.digest_token(text)
    assert not any(text in str(value) for value in vars(token).values())
    assert tokens.find_token(text) == token


def test_tokens_differ(run):
    assert len({run("create_token", "--role", "client", "x") for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("duration", "seconds"), [("30d", 30 * 86400), ("24h", 86400), ("5m", 300), ("45s", 45), ("45", 45)]
)
def test_a_token_ends_when_it_expires_and_not_before(run, clock, duration, seconds):
    client = Caller(run("create_token", "--role", "client", "--expires-in", duration, "x").strip())
    clock.advance(seconds - 5)
    assert client.post("/jobs", JOB).status_code == 201
    clock.advance(5)
    answer = client.post("/jobs", JOB)
    assert (answer.status_code, answer.json()["code"]) == (401, "token_expired")


@pytest.mark.parametrize(
    "words",
    [
        ["x"],
        ["--role", "admin", "x"],
        ["--role", "client"],
        ["--role", "client", "--expires-in", "soon", "x"],
        ["--role", "client", "--expires-in", "-5s", "x"],
        ["--role", "client", "--expires-in", "99999999999d", "x"],
    ],
    ids=" ".join,
)
def test_create_token_explains_an_error_and_creates_nothing(run, words):
    with pytest.raises(CommandError):
        run("create_token", *words)
    assert not ApiToken.objects.exists()


def test_a_revoked_token_is_refused_at_the_next_request(run, api):
    client, other = api("client"), api("client")
    assert client.post("/jobs", JOB).status_code == 201
    run("revoke_token", client.token[:11])
    answer = client.post("/jobs", JOB)
    assert (answer.status_code, answer.json()["code"]) == (401, "token_revoked")
    assert other.post("/jobs", JOB).status_code == 201


@pytest.mark.parametrize("prefix", ["", "cp_", "cp_abcd", "cp_nobody__", "%%%%%%%%"])
def test_revoke_token_reports_an_unknown_prefix_and_revokes_no_other(run, api, prefix):
    client = api("client")
    with pytest.raises(CommandError):
        run("revoke_token", prefix)
    assert client.post("/jobs", JOB).status_code == 201


def test_a_token_is_revoked_once(run, api):
    client = api("client")
    run("revoke_token", client.token[:11])
    first = ApiToken.objects.get(digest=tokens.digest_token(client.token)).revoked_at
    with pytest.raises(CommandError):
        run("revoke_token", client.token[:11])
    assert ApiToken.objects.get(digest=tokens.digest_token(client.token)).revoked_at == first


@pytest.mark.parametrize(("option", "status"), [([], 200), (["--with-servers"], 401)])
def test_servers_outlive_their_token_unless_with_servers_is_given(run, api, option, status):
    registrar, other = api("worker"), api("worker")
    one, another = Worker.register(registrar), Worker.register(other)
    run("revoke_token", *option, registrar.token[:11])
    assert one.beat().status_code == status
    assert another.beat().status_code == 200
    answer = registrar.post(
        "/servers", {"type": "WORKER", "name": "w", "instance_id": "01890000-0000-7000-8000-000000000000"}
    )
    assert (answer.status_code, answer.json()["code"]) == (401, "token_revoked")


def test_check_liveness_prints_what_it_did(run, worker, submit, clock):
    submit(), submit()
    one = worker(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    one.hold(), one.hold(running=False)
    clock.advance(46)
    output = run("check_liveness")
    assert "disconnected: 1" in output
    assert "1 REQUEUED" in output and "1 RESUBMITTED" in output


def test_check_liveness_fails_when_a_step_does(run, monkeypatch):
    monkeypatch.setattr(
        checking, "check_liveness", lambda: (_ for _ in ()).throw(checking.CheckFailed("Failed steps: detect"))
    )
    with pytest.raises(CommandError, match="detect"):
        run("check_liveness")


def test_sweep_jobs_recovers_what_is_lost_without_a_check(run, worker, submit):
    submit()
    one = worker(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    one.hold()
    one.beat(state="ERROR")
    assert "\nrecovered: 1 RESUBMITTED\n" in run("sweep_jobs")
    steps = ("holds", "recovered", "overdue", "expired", "unmatched", "timed_out", "late", "repaired", "limits")
    assert run("sweep_jobs") == "".join(f"{step}: 0\n" for step in steps)
