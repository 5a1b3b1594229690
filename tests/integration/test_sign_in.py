"""Signing in: passwords are tried at a limited rate, and sessions last while they are used."""

from datetime import timedelta

import pytest
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Group, Permission, User
from django.contrib.auth.password_validation import validate_password
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from controlplane.console import sign_in
from controlplane.console.sign_in import IS_SIGNED_IN
from jobs import tasks
from liveness.models import SignIn
from liveness.services import sign_ins

HERE, THERE = "192.0.2.1", "192.0.2.2"
PAUSE, HOUR, DAY = 30, 3600, 86400


@pytest.fixture
def hashed(clock, monkeypatch):
    """The passwords that were looked at; there is a user ann, and the clock stands still."""
    passwords = []
    User.objects.create_superuser("ann", password="a right password")
    for method in ("check_password", "set_password"):  # the second for a name that nobody has
        real = getattr(User, method)
        monkeypatch.setattr(User, method, lambda self, raw, real=real: passwords.append(raw) or real(self, raw))
    return passwords


def attempt(word="wrong", name="ann", address=HERE):
    form = {"username": name, "password": word, "next": "/admin/"}
    return Client().post("/admin/login/", form, REMOTE_ADDR=address)


def test_after_five_wrong_passwords_the_next_is_not_even_looked_at_and_the_answer_says_when_it_is(hashed, clock):
    assert [attempt().status_code for _ in range(5)] == [200] * 5
    assert len(hashed) == 5
    answer = attempt("a right password")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "30")
    assert "allowed in 30 s" in answer.content.decode()
    assert len(hashed) == 5
    assert not SignIn.objects.filter(key__contains="ann").exists()


def test_nobody_is_kept_out_for_longer_than_a_pause_by_those_who_go_on_trying(hashed, clock):
    for _ in range(30):
        attempt()
    clock.advance(PAUSE - 1)
    assert attempt("a right password").status_code == 429
    clock.advance(1)
    assert attempt("a right password").status_code == 302


def test_another_address_and_another_name_are_not_kept_out_with_it(hashed):
    for _ in range(6):
        attempt()
    assert attempt(name="bob").status_code == 200
    assert attempt("a right password", address=THERE).status_code == 302


@pytest.mark.parametrize("address", [HERE, "2001:db8::{:x}"])
def test_many_names_from_one_address_are_limited_too(hashed, address):
    answers = [attempt(name=f"name-{n}", address=address.format(n)).status_code for n in range(25)]
    assert answers == [200] * 20 + [429] * 5
    assert len(hashed) == 20


def test_the_right_password_makes_the_wrong_ones_before_it_forgotten_and_counts_for_nothing(hashed):
    for _ in range(25):
        assert attempt("a right password").status_code == 302
    for _ in range(2):
        assert [attempt().status_code for _ in range(4)] == [200] * 4
        assert attempt("a right password").status_code == 302


def test_what_has_passed_leaves_no_rows(hashed, clock):
    for n in range(20):
        attempt(name=f"name-{n}")
    clock.advance(20 * PAUSE)
    attempt(address=THERE)
    assert SignIn.objects.count() == 2


def test_no_more_are_let_through_when_they_come_all_at_once(committed, threads):
    answers = [threads(sign_ins.count, "ann", HERE) for _ in range(9)]
    assert sorted(answer.result(30) > 0 for answer in answers) == [False] * 5 + [True] * 4


@pytest.mark.parametrize(
    ("behind_tls", "forwarded", "address"),
    [(False, "192.0.2.9", HERE), (True, "192.0.2.8, 192.0.2.9", "192.0.2.9"), (True, "", HERE)],
)
def test_only_behind_a_proxy_is_its_word_taken_for_the_address(rf, settings, behind_tls, forwarded, address):
    settings.BEHIND_TLS = behind_tls
    request = rf.get("/", REMOTE_ADDR=HERE, headers={"X-Forwarded-For": forwarded})
    assert sign_in.address_of(request) == address


@pytest.mark.parametrize("password", ["short", "12345678901234", "password123", "ann-smith"])
def test_a_bad_password_is_refused(db, password):
    with pytest.raises(ValidationError):
        validate_password(password, User(username="ann-smith"))


def test_a_session_lasts_while_it_is_used_and_for_a_fortnight_at_most(client, admin_user, monkeypatch):
    now = [1.8e9]
    monkeypatch.setattr(sign_in.time, "time", lambda: now[0])
    client.force_login(admin_user)

    def is_renewed(after):
        now[0] += after
        answer = client.get("/admin/")
        assert answer.status_code == 200
        return "sessionid" in answer.cookies

    assert not is_renewed(0)
    assert not is_renewed(HOUR / 2)
    assert is_renewed(HOUR)
    for _ in range(13):
        assert is_renewed(DAY)
    assert not is_renewed(DAY)


def test_sessions_that_are_over_are_deleted_and_the_others_stay(admin_client, client, admin_user):
    client.force_login(admin_user)
    Session.objects.filter(pk=client.session.session_key).update(expire_date=timezone.now() - timedelta(seconds=1))
    tasks.prune()
    assert list(Session.objects.values_list("pk", flat=True)) == [admin_client.session.session_key]


def test_who_is_not_signed_in_gets_no_session(client, db):
    assert "sessionid" not in client.get("/admin/login/").cookies


@pytest.mark.parametrize(("path", "is_signed_in"), [("/admin/", True), ("/livez", False)])
def test_a_page_that_asks_for_its_reader_says_who_is_signed_in(admin_client, path, is_signed_in):
    answer = admin_client.get(path)
    assert (answer.status_code, IS_SIGNED_IN in answer.wsgi_request.META) == (200, is_signed_in)


def test_of_a_session_that_was_made_up_nobody_is_signed_in(client):
    client.cookies["sessionid"] = "made-up"
    assert IS_SIGNED_IN not in client.get("/admin/").wsgi_request.META


@pytest.mark.parametrize(
    "of", [{}, {"is_superuser": True}, {"is_active": False}], ids=["staff", "superuser", "inactive"]
)
def test_permissions_are_those_of_the_user_and_of_his_groups_in_one_query(db, of, django_assert_num_queries):
    user = User.objects.create_user("ann", is_staff=True, **of)
    group = Group.objects.create(name="watch")
    one, two, three = Permission.objects.order_by("pk")[:3]
    user.user_permissions.set([one, two])
    group.permissions.set([two, three])
    user.groups.add(group)
    expected = ModelBackend().get_all_permissions(User.objects.get(pk=user.pk))
    fresh = User.objects.get(pk=user.pk)
    with django_assert_num_queries(1 if user.is_active else 0):
        assert fresh.get_all_permissions() == expected
        assert fresh.has_perm(next(iter(expected))) if expected else not fresh.has_perm("auth.view_user")
