"""Test actions of operators on servers and on the whole control plane, on the command line."""

import uuid

import pytest
from django.core.management import CommandError, call_command

from liveness.models import Instance, Server, ServerEvent
from tests.support.operators import ACTIONS, BEFORE, actions, engage


@pytest.fixture
def run(db, capsys, monkeypatch):
    """Run a command as the user ann, and return its output."""
    monkeypatch.setenv("LOGNAME", "ann")

    def run(*words):
        call_command(*words)
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("by", ["id", "name"])
@pytest.mark.parametrize("name", ACTIONS)
def test_a_command_does_what_the_call_does_and_prints_it(run, operator, worker, name, by):
    one = worker()
    for step in BEFORE.get(name, []):
        operator(step, one)
    before = ServerEvent.objects.count()
    output = run(name, one.id if by == "id" else "worker-1", "--note", "a new disk")
    assert output.startswith(f"worker-1 ({one.id}, ")
    event = ServerEvent.objects.last()
    assert ServerEvent.objects.count() == before + 1
    assert (event.actor, event.reason) == ("operator:ann", "a new disk")
    assert event.action == ("" if name == "disconnect" else name)


def test_drain_takes_its_deadline_as_people_write_it(run, worker):
    worker()
    run("drain", "worker-1", "--deadline", "5m")
    assert Server.objects.get().drain_deadline is not None
    with pytest.raises(CommandError, match="is not a duration"):
        run("drain", "worker-1", "--deadline", "soon")


def test_a_command_explains_a_refusal(run, worker):
    one = worker()
    with pytest.raises(CommandError, match="is not cordoned"):
        run("uncordon", one.id)
    with pytest.raises(CommandError, match="is not in maintenance"):
        run("maintenance", "exit")
    with pytest.raises(CommandError, match="nothing to release"):
        run("release_brake")


def test_a_command_acts_on_no_server_that_it_may_have_mistaken(run, worker):
    first, second = worker(), worker()
    with pytest.raises(CommandError, match=f"{first.id}, {second.id}"):
        run("cordon", "worker-1")
    with pytest.raises(CommandError, match="No server"):
        run("cordon", "worker-2")
    with pytest.raises(CommandError, match="No server"):
        run("cordon", str(uuid.uuid4()))
    second.beat(state="TERMINATING")
    run("cordon", "worker-1")
    assert Server.objects.exclude(cordoned_by=None).get().pk == uuid.UUID(first.id)


def test_maintenance_and_brake_have_commands(run):
    engage(), engage("INDEXER")
    assert run("maintenance", "enter", "--note", "new switches") == "in maintenance\n"
    assert Instance.objects.get().maintenance_note == "new switches"
    assert run("maintenance", "exit") == "no longer in maintenance\n"
    assert run("release_brake", "--type", "worker", "--reason", "gone") == "released: WORKER\n"
    assert run("release_brake") == "released: INDEXER\n"
    assert actions(actor="operator:ann") == ["maintenance_enter", "maintenance_exit", *["brake_released"] * 2]
