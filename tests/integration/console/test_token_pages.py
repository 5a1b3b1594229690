"""Page *API tokens*: tokens are made, shown once, and revoked."""

import re

import pytest

from liveness.models import ApiToken, ServerEvent
from liveness.selectors.api_tokens import callable_tokens
from liveness.services import tokens
from tests.support.http import Caller
from tests.support.operators import actions
from tests.support.people import employ

pytestmark = pytest.mark.django_db
PAGE = "/admin/instance/tokens/"


@pytest.fixture
def browser(staff):
    return staff("view_apitoken", "add_apitoken", "change_apitoken", checks_csrf=False)


def make(browser, **fields):
    return browser.post(f"{PAGE}add/", {"name": "ci", "role": "client", "lifetime": "", "note": "", **fields})


def test_a_token_is_made_and_shown_once(browser):
    assert "New token…" in browser.get(PAGE).content.decode()
    answer = make(browser, note="for the builds")
    [text] = re.findall(r'id="new-token">([^<]+)<', answer.content.decode())
    assert "shown only now" in answer.content.decode() and "no-store" in answer.headers["Cache-Control"]
    assert Caller(text).get("/jobs").status_code == 200
    again = browser.get(PAGE).content.decode()
    assert text not in again and text[:11] in again and "ci" in again
    [event] = ServerEvent.objects.filter(action="create_token")
    assert (event.actor, event.reason) == ("operator:ann", "for the builds")


def test_a_token_may_expire(browser):
    make(browser, lifetime="30d")
    token = ApiToken.objects.get(name="ci")
    assert round((token.expires_at - token.created_at).total_seconds()) == 30 * 86400


@pytest.mark.parametrize("wrong", [{"name": ""}, {"role": "root"}, {"lifetime": "soon"}, {"lifetime": "0s"}])
def test_an_invalid_form_makes_no_token(browser, wrong):
    assert make(browser, **wrong).status_code == 200
    assert not ApiToken.objects.exists()


def test_a_token_is_revoked_and_its_next_call_is_refused(browser):
    caller = Caller(tokens.create_token("ci", "client"))
    token = ApiToken.objects.get()
    at = f"{PAGE}{token.pk}/revoke/"
    assert "cannot be undone" in browser.get(at).content.decode()
    assert browser.post(at, {"note": ""}).status_code == 200 and caller.get("/jobs").status_code == 200
    assert browser.post(at, {"note": "leaked"}).status_code == 302
    assert caller.get("/jobs").status_code == 401
    page = browser.get(PAGE).content.decode()
    assert "REVOKED" in page and "Revoke…" not in page
    assert browser.post(at, {"note": "again"}).status_code == 409
    assert actions(subject_type="token") == ["revoke_token"]


def test_a_revocation_may_disconnect_the_servers_of_the_token(browser, worker):
    server = worker()
    token = ApiToken.objects.get(role="worker")
    assert "1<span" in browser.get(PAGE).content.decode()
    browser.post(f"{PAGE}{token.pk}/revoke/", {"note": "leaked", "with_servers": "on"})
    assert ServerEvent.objects.filter(server_id=server.id, to_state="DISCONNECTED").exists()


def test_a_token_is_listed_once_however_many_servers_it_has(browser, worker):
    worker("one"), worker("two"), worker("three")
    token = ApiToken.objects.get(role="worker")
    page = browser.get(PAGE).content.decode()
    assert page.count(f"{token.prefix}…") == 1 and "3<span" in page
    # The clock of the database moves between two rows, but not that of the tests.
    assert str(callable_tokens(None).query).endswith('GROUP BY "liveness_apitoken"."id"')


def test_tokens_of_sessions_and_of_other_namespaces_are_not_listed(client):
    tokens.create_token("for-them", "client", namespace="other")
    tokens.create_token("for-us", "client", namespace="mine")
    tokens.get_session_token(1, "somebody", "client")
    client.force_login(
        employ(*(f"liveness.{name}" for name in ("view_server", "view_apitoken", "change_apitoken", "namespace:mine")))
    )
    page = client.get(PAGE).content.decode()
    assert "for-us" in page and "for-them" not in page and "somebody" not in page
    theirs = ApiToken.objects.get(name="for-them")
    assert client.post(f"{PAGE}{theirs.pk}/revoke/", {"note": "x"}).status_code == 404


def test_a_reader_needs_a_permission_for_each_action_on_tokens(staff, reader):
    token = tokens.create_token("ci", "client") and ApiToken.objects.get()
    assert reader.get(PAGE).status_code == 403
    viewer = staff("view_apitoken")
    page = viewer.get(PAGE).content.decode()
    assert "ci" in page and "New token…" not in page and "Revoke…" not in page
    for path in ("add/", f"{token.pk}/revoke/"):
        assert viewer.get(PAGE + path).status_code == 403, path
