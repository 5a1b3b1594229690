"""A key is replaced while servers and people continue. Signatures of earlier keys are accepted and renewed."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from liveness.models import ApiToken, Role
from liveness.services import revocation, tokens
from tests.integration.api.test_sessions import Browser

OLD, NEW, OTHER = (f"{name}-key-of-this-installation-long-enough" for name in ("old", "new", "other"))


@pytest.fixture
def keys(settings):
    """Give the control plane other keys, as a restart does."""
    given = dict(settings.LIVENESS)

    def choose(key, fallbacks=(), signing=None, **liveness):
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = key, list(fallbacks)
        settings.LIVENESS = {**given, "SIGNING_KEY": signing, **liveness}
        tokens.read_server_token.cache_clear()

    yield choose
    tokens.read_server_token.cache_clear()


PLAIN, LONG = {"metrics": {}}, {"claimed": [], "running": []}


LISTED = {"SIGNING_KEY_FALLBACKS": OLD}
CHANGES = {
    "secret key": [{"key": OLD}, {"key": NEW, "fallbacks": [OLD]}, {"key": NEW}],
    "signing key": [
        {"key": OTHER, "signing": OLD}, {"key": OTHER, "signing": NEW, **LISTED}, {"key": OTHER, "signing": NEW},
    ],
    "first signing key": [{"key": OLD}, {"key": OLD, "signing": NEW, **LISTED}, {"key": OTHER, "signing": NEW}],
}  # fmt: skip


@pytest.mark.parametrize("fields", [PLAIN, LONG], ids=["short way", "long way"])
@pytest.mark.parametrize("change", CHANGES)
def test_the_next_heartbeat_brings_a_token_of_the_new_key(keys, worker, fields, change):
    before, between, after = CHANGES[change]
    keys(**before)
    one = worker()
    assert "token" not in one.beat(**fields).json()
    keys(**between)
    assert one.claim() == []
    renewed = one.beat(**fields).json()["token"]
    assert renewed != one.token
    one.token = renewed
    assert "token" not in one.beat(**fields).json()
    keys(**after)
    assert one.beat(**fields).status_code == 200 and one.claim() == []


def test_an_earlier_key_that_is_listed_no_more_signs_nothing(keys, worker):
    keys(OLD)
    one = worker()
    keys(NEW)
    assert one.beat().json()["code"] == "token_unknown"


def test_a_token_that_was_revoked_is_not_renewed(keys, worker):
    keys(OLD)
    one = worker()
    revocation.revoke_tokens(ApiToken.objects.get(role=Role.WORKER).prefix, "operator:me", with_servers=True)
    keys(NEW, [OLD])
    answer = one.beat()
    assert answer.status_code == 401 and "cps_" not in answer.content.decode()


def test_a_session_and_its_jobs_outlive_the_key_that_signed_it(keys, db):
    keys(OLD)
    browser = Browser(is_staff=True, is_superuser=True)
    body = {"action": {"type": "script", "command": "true"}, "key": "once", "unmatched": "wait"}
    job = browser.post("/jobs", body).json()["id"]
    keys(NEW, [OLD])
    assert browser.post("/jobs", body).json()["id"] == job
    keys(NEW)
    assert browser.post("/jobs", body).json()["id"] == job
    assert ApiToken.objects.filter(prefix="session").count() == 1


def test_without_the_earlier_key_a_session_ends(keys, db):
    keys(OLD)
    client = Client()
    client.force_login(User.objects.create_superuser("ops"))
    assert client.get("/admin/instance/").status_code == 200
    keys(OTHER)
    assert client.get("/admin/instance/").status_code == 302
