"""Fixtures for tests of namespaces: callers, workers, objects and users of a namespace."""

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from liveness.models import ALL_NAMESPACES
from liveness.services import tokens
from tests.support.http import Caller, Worker

SCRIPT = {"type": "script", "command": "true"}


@pytest.fixture
def of(db):
    """Call the API with a new token of a namespace: `of("red", "client").get("/jobs")`."""
    return lambda namespace, role: Caller(tokens.create_token(f"a {role}", role, namespace=namespace))


@pytest.fixture
def worker_of(of, clock):
    """Start a worker of a namespace, RUNNING and fresh."""
    return lambda namespace, **fields: Worker.register(of(namespace, "worker"), **fields).running()


def submit_as(client, **fields):
    answer = client.post("/jobs", {"action": SCRIPT, **fields})
    assert answer.status_code in (200, 201), answer.json()
    return answer.json()


@pytest.fixture
def blue(of, worker_of):
    """Return the URL of one object of each kind in the namespace blue."""
    client, operator = of("blue", "client"), of("blue", "operator")
    steps = [{"key": "a", "action": SCRIPT}]
    execution = client.post("/executions", {"name": "n", "steps": steps}).json()
    fields = {"name": "t", "interval_seconds": 60, "action": SCRIPT, "execution": {"name": "n", "steps": steps}}
    return {
        "server": f"/servers/{worker_of('blue').id}",
        "job": f"/jobs/{submit_as(client)['id']}",
        "execution": f"/executions/{execution['id']}",
        "trigger": f"/triggers/{operator.post('/triggers', fields).json()['id']}",
    }


@pytest.fixture
def member(db):
    """Sign in an administrator whose groups name these namespaces, or all of them."""

    def sign_in(*namespaces, sees_all=False):
        group = Group.objects.create(name=f"of {' '.join(namespaces)}{sees_all}")
        tokens.make_permissions(*namespaces)
        names = [f"namespace:{name}" for name in namespaces] + [ALL_NAMESPACES] * sees_all
        group.permissions.set(Permission.objects.filter(codename__in=names))
        user = User.objects.create_user(group.name, is_staff=True)
        user.groups.add(group, Group.objects.get(name="Control plane administrator"))
        client = Client()
        client.force_login(user)
        return client

    return sign_in
