"""Sign-in through an OpenID Connect provider that speaks real HTTP."""

import sys
from urllib.parse import urlsplit

import pytest
import urllib3
from cryptography.hazmat.primitives.asymmetric import rsa
from django.contrib.auth.models import Group, User
from django.test import Client

from controlplane import site_urls
from controlplane.console import openid
from controlplane.openid_settings import read_environment
from tests.support.openid_provider import CLIENT_ID, CLIENT_SECRET, running_provider
from tests.support.people import viewing

PAGE = "/admin/instance/"
handler404, handler403, handler500 = site_urls.handler404, site_urls.handler403, site_urls.handler500
urlpatterns = [*openid.urlpatterns, *site_urls.urlpatterns]


@pytest.fixture
def configure(settings, db):
    """Configure sign-in as the environment would."""

    def configure(issuer, **more):
        environment = {
            "OIDC_ISSUER": issuer, "OIDC_CLIENT_ID": CLIENT_ID, "OIDC_CLIENT_SECRET": CLIENT_SECRET, **more,
        }  # fmt: skip
        for name, value in read_environment(environment).items():
            setattr(settings, name, value)
        settings.ROOT_URLCONF = sys.modules[__name__]
        settings.AUTHENTICATION_BACKENDS = [
            "controlplane.console.openid.OpenIdUsers", "controlplane.console.sign_in.Throttled",
        ]  # fmt: skip
        openid.discover.cache_clear()

    yield configure
    openid.discover.cache_clear()


@pytest.fixture
def provider(configure):
    with running_provider() as provider:
        configure(provider.url)
        provider.claims["groups"] = ["operators", "a group that only the provider has"]
        Group.objects.create(name="operators").permissions.set(viewing())
        yield provider


def to_provider(browser):
    """Return the address to which the provider sends the browser back."""
    redirect = browser.get(f"/admin/login/?next={PAGE}")
    assert redirect.status_code == 302, redirect.content
    answer = urllib3.request("GET", redirect.url, redirect=False)
    assert answer.status == 302
    back = urlsplit(answer.headers["Location"])
    assert back.path == "/oidc/callback/"
    return f"{back.path}?{back.query}"


def sign_in(browser):
    return browser.get(to_provider(browser))


def refused_with(response, status, text):
    assert response.status_code == status
    page = response.content.decode()
    assert text in page and "/admin/login/?password=1" in page
    return not User.objects.exists()


def test_a_user_of_a_known_group_is_signed_in_and_returns_to_the_page(provider):
    browser = Client()
    response = sign_in(browser)
    assert (response.status_code, response.url) == (302, PAGE)
    user = User.objects.get()
    assert (user.username, user.is_staff, user.is_superuser) == ("ann@example.org", True, False)
    assert [group.name for group in user.groups.all()] == ["operators"]
    assert user.has_perm("liveness.view_server") and not user.has_usable_password()
    assert browser.get(PAGE).status_code == 200


def test_each_sign_in_sets_the_groups_again(provider):
    sign_in(Client())
    Group.objects.create(name="others")
    provider.claims["groups"] = ["others"]
    sign_in(Client())
    assert [group.name for group in User.objects.get().groups.all()] == ["others"]


def test_the_mapping_alone_decides_which_groups_a_user_gets(provider, configure):
    Group.objects.create(name="Everything, and more")
    Group.objects.create(name="everybody")
    configure(provider.url, OIDC_GROUPS="admins = operators, admins=everybody", OIDC_GROUPS_CLAIM="roles")
    provider.claims["roles"] = "admins"
    assert sign_in(Client()).url == PAGE
    assert {group.name for group in User.objects.get().groups.all()} == {"operators", "everybody"}
    User.objects.all().delete()
    provider.claims["roles"] = ["operators"]
    assert refused_with(sign_in(Client()), 403, "in no group")


@pytest.mark.parametrize(
    "claims",
    [{"groups": []}, {"groups": ["unknown"]}, {"email_verified": False}, {"email_verified": "true"}, {"email": ""}],
)
def test_without_a_verified_address_and_a_group_nobody_is_signed_in(provider, claims):
    provider.claims.update(claims)
    browser = Client()
    assert refused_with(sign_in(browser), 403, "did not confirm a verified e-mail address")
    assert browser.get(PAGE).status_code == 302


@pytest.mark.parametrize(
    "claims",
    [{"iss": "https://other.example"}, {"aud": "another client"}, {"aud": ["a", "b"]}, {"nonce": "x"}, {"sub": "2"},
     {"exp": 1}],
    ids=str,
)  # fmt: skip
def test_an_id_token_for_somebody_else_is_refused(provider, claims):
    provider.token_claims = claims
    response = sign_in(Client())
    assert response.status_code in (403, 502) and refused_with(response, response.status_code, "Sign-in failed")


def test_an_id_token_with_a_wrong_signature_is_refused(provider):
    provider.signing_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert refused_with(sign_in(Client()), 502, "answer is not valid")


def test_a_state_of_another_browser_is_refused(provider):
    address = to_provider(Client())
    assert refused_with(Client().get(address), 403, "Sign-in failed")
    browser = Client()
    to_provider(browser)
    assert refused_with(browser.get(address), 502, "Sign-in failed")


def test_a_refusal_by_the_provider_is_a_page(provider):
    browser = Client()
    to_provider(browser)
    assert refused_with(browser.get("/oidc/callback/?error=access_denied&state=x"), 403, "Sign-in failed")


def test_while_the_provider_is_down_the_page_offers_the_password_form(configure):
    configure("http://127.0.0.1:1")
    assert refused_with(Client().get("/admin/login/"), 502, "does not answer")


@pytest.mark.parametrize("document", [{"issuer": "https://other.example"}, {"token_endpoint": None}])
def test_a_wrong_discovery_document_is_refused_and_read_again(provider, document):
    provider.document = document
    assert refused_with(Client().get("/admin/login/"), 502, "answer is not valid")
    provider.document = {}
    assert sign_in(Client()).status_code == 302


def test_passwords_work_beside_it_and_while_the_provider_is_down(configure):
    configure("http://127.0.0.1:1")
    User.objects.create_superuser("admin", password="a right password")
    browser = Client()
    form = "/admin/login/?password=1"
    assert 'name="password"' in browser.get(form).content.decode()
    response = browser.post(form, {"username": "admin", "password": "a right password", "next": PAGE})
    assert (response.status_code, response.url) == (302, PAGE)
    assert browser.get(PAGE).status_code == 200
    assert Client().post(form, {"username": "admin", "password": "wrong"}).status_code == 200


def test_an_inactive_user_is_signed_out_at_once(provider):
    browser = Client()
    sign_in(browser)
    User.objects.update(is_active=False)
    assert browser.get(PAGE).status_code == 302
    assert refused_with(sign_in(Client()), 403, "Sign-in failed") is False


def test_pages_need_no_provider_after_the_sign_in(provider, configure):
    browser = Client()
    sign_in(browser)
    configure("http://127.0.0.1:1")
    assert browser.get(PAGE).status_code == 200
