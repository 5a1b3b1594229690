"""Sign-in: password attempts are limited, and sessions last while they are used."""

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
    """Return the list of passwords that were checked. There is a user ann, and the clock stands still."""
    passwords = []
    User.objects.create_superuser("ann", password="a right password")
    for method in ("check_password", "set_password"):  # set_password hashes for an unknown name
        real = getattr(User, method)
        monkeypatch.setattr(User, method, lambda self, raw, real=real: passwords.append(raw) or real(self, raw))
    return passwords


def attempt(word="wrong", name="ann", address=HERE):
    form = {"username": name, "password": word, "next": "/admin/"}
    return Client().post("/admin/login/", form, REMOTE_ADDR=address)


def test_after_five_wrong_passwords_the_next_attempt_must_wait(hashed, clock):
    assert [attempt().status_code for _ in range(5)] == [200] * 5
    assert len(hashed) == 5
    answer = attempt("a right password")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "30")
    assert "allowed in 30 s" in answer.content.decode()
    assert len(hashed) == 5
    assert not SignIn.objects.filter(key__contains="ann").exists()


def test_continued_attempts_do_not_extend_the_pause_for_others(hashed, clock):
    for _ in range(30):
        attempt()
    clock.advance(PAUSE - 1)
    assert attempt("a right password").status_code == 429
    clock.advance(1)
    assert attempt("a right password").status_code == 302


def test_the_limit_does_not_affect_another_address_or_name(hashed):
    for _ in range(6):
        attempt()
    assert attempt(name="bob").status_code == 200
    assert attempt("a right password", address=THERE).status_code == 302


@pytest.mark.parametrize("address", [HERE, "2001:db8::{:x}"])
def test_many_names_from_one_address_are_limited_too(hashed, address):
    answers = [attempt(name=f"name-{n}", address=address.format(n)).status_code for n in range(25)]
    assert answers == [200] * 20 + [429] * 5
    assert len(hashed) == 20


def test_the_right_password_clears_the_wrong_ones_and_does_not_count(hashed):
    for _ in range(25):
        assert attempt("a right password").status_code == 302
    for _ in range(2):
        assert [attempt().status_code for _ in range(4)] == [200] * 4
        assert attempt("a right password").status_code == 302


def test_expired_attempts_leave_no_rows(hashed, clock):
    for n in range(20):
        attempt(name=f"name-{n}")
    clock.advance(20 * PAUSE)
    attempt(address=THERE)
    assert SignIn.objects.count() == 2


def test_concurrent_attempts_cannot_exceed_the_limit(committed, threads):
    answers = [threads(sign_ins.count, "ann", HERE) for _ in range(9)]
    assert sorted(answer.result(30) > 0 for answer in answers) == [False] * 5 + [True] * 4


@pytest.mark.parametrize(
    ("behind_tls", "forwarded", "address"),
    [(False, "192.0.2.9", HERE), (True, "192.0.2.8, 192.0.2.9", "192.0.2.9"), (True, "", HERE)],
)
def test_the_forwarded_address_is_trusted_only_behind_a_proxy(rf, settings, behind_tls, forwarded, address):
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


def test_an_anonymous_visitor_gets_no_session(client, db):
    assert "sessionid" not in client.get("/admin/login/").cookies


@pytest.mark.parametrize(("path", "is_signed_in"), [("/admin/", True), ("/livez", False)])
def test_a_page_that_reads_its_user_shows_who_is_signed_in(admin_client, path, is_signed_in):
    answer = admin_client.get(path)
    assert (answer.status_code, IS_SIGNED_IN in answer.wsgi_request.META) == (200, is_signed_in)


def test_an_invented_session_signs_nobody_in(client):
    client.cookies["sessionid"] = "made-up"
    assert IS_SIGNED_IN not in client.get("/admin/").wsgi_request.META


@pytest.mark.parametrize(
    "of", [{}, {"is_superuser": True}, {"is_active": False}], ids=["staff", "superuser", "inactive"]
)
def test_permissions_of_a_user_and_of_the_groups_take_one_query(db, of, django_assert_num_queries):
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
