"""Groups that the migrations make: a member may do the work of the group, and no more."""

import pytest
from django.contrib.auth.models import Group, Permission, User

from jobs.api.sessions import operator_permissions
from jobs.permissions import VIEWS
from tests.support.http import Caller

pytestmark = pytest.mark.django_db

ROLES = ("administrator", "all namespaces", "auditor", "operator", "viewer")
NAMES = [f"Control plane {role}" for role in ROLES]


def member_of(*roles):
    user = User.objects.create_user(roles[0], is_staff=True)
    user.groups.add(*Group.objects.filter(name__in=[f"Control plane {role}" for role in roles]))
    return user


def test_the_migrations_make_them():
    assert list(Group.objects.order_by("name").values_list("name", flat=True)) == NAMES


def test_a_viewer_only_views_and_an_operator_takes_every_action():
    assert member_of("viewer").get_all_permissions() == set(VIEWS.values())
    triggers = {f"jobs.{action}_trigger" for action in ("add", "change", "delete")}
    jobs = {"jobs.add_workerjob", "jobs.change_workerjob"}
    assert member_of("operator").get_all_permissions() == set(VIEWS.values()) | triggers | jobs | operator_permissions()


def test_an_auditor_views_whatever_there_is_and_changes_nothing():
    names = {name.partition(".")[2] for name in member_of("auditor").get_all_permissions()}
    assert {"view_serverevent", "view_apitoken", "view_attempt", "view_workerjob"} <= names
    assert all(name.startswith("view_") for name in names)


def test_an_administrator_has_every_permission_of_the_control_plane_but_a_namespace():
    own = Permission.objects.filter(content_type__app_label__in=["jobs", "liveness"])
    own = own.exclude(codename="view_all_namespaces")
    names = {f"{one.content_type.app_label}.{one.codename}" for one in own.select_related("content_type")}
    assert member_of("administrator").get_all_permissions() == names


@pytest.mark.parametrize(
    ("role", "reads", "acts"), [("viewer", 200, 403), ("auditor", 200, 403), ("operator", 200, 200)]
)
def test_a_member_makes_the_calls_of_the_role_with_the_session(role, reads, acts, worker):
    server = worker().id
    caller = Caller(token=None)
    caller.client.force_login(member_of(role, "all namespaces"))
    assert caller.get("/servers").status_code == reads
    assert caller.post(f"/servers/{server}/cordon", {"note": "a new disk"}).status_code == acts
