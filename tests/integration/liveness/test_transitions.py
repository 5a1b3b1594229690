"""The services and the database refuse every transition that is not in the tables."""

import itertools
import uuid

import pytest
from django.db import IntegrityError, connection, transaction

from controlplane.core.model_fields import ClockTimestamp
from jobs import states as job_states
from jobs.models import Attempt, Execution, WorkerJob
from jobs.states import AttemptState, ExecutionState, JobState
from liveness import states
from liveness.errors import IllegalTransition
from liveness.models import Server, ServerEvent
from liveness.services import tokens, transitions
from liveness.states import Mover, ServerState
from tests.support.executions import step
from tests.support.transitions import put, way_to

PAIRS = list(itertools.permutations(ServerState, 2))


@pytest.fixture
def server(worker):
    return Server.objects.get(pk=worker().id)


@pytest.fixture
def created(api):
    answer = api("worker").post("/servers", {"type": "WORKER", "name": "new", "instance_id": str(uuid.uuid4())})
    return Server.objects.get(pk=answer.json()["id"])


@pytest.fixture
def for_each_pair(subtests):
    """Return a function that calls a check for each pair of states, and undoes what it wrote."""

    def run(states, check):
        for from_, to in itertools.permutations(states, 2):
            with subtests.test(f"{from_} to {to}"), transaction.atomic():
                check(from_, to)
                transaction.set_rollback(True)

    return run


def assert_is_transition(table, from_, to, write):
    """Write the second state. Check that the database accepts this only if the table has the transition."""
    try:
        with transaction.atomic():
            write(to)
    except IntegrityError as error:
        assert f"illegal transition from {from_} to {to}" in str(error)
        assert to not in table[from_]
        return False
    assert to in table[from_]
    return True


def test_raw_sql_makes_exactly_the_transitions_of_the_table_with_one_event_each(created, for_each_pair):
    rows = Server.objects.filter(pk=created.pk)

    def check(from_, to):
        put(rows.get(), from_)
        before = ServerEvent.objects.count()
        if assert_is_transition(states.TRANSITIONS, from_, to, write):
            event = ServerEvent.objects.last()
            assert ServerEvent.objects.count() == before + 1
            assert (event.from_state, event.to_state, event.actor, event.reason) == (from_, to, "liveness", "a test")
        else:
            assert ServerEvent.objects.count() == before

    def write(state):
        rows.update(state=state, state_actor="liveness", state_reason="a test")

    for_each_pair(ServerState, check)


@pytest.mark.parametrize("mover", list(Mover))
def test_the_gate_lets_each_mover_make_its_own_transitions_only(created, mover):
    for from_, to in PAIRS:
        sid = transaction.savepoint()
        server = put(Server.objects.get(pk=created.pk), from_)
        try:
            transitions.change_state(server, to, mover, actor="a test", reason="")
            assert mover in states.TRANSITIONS[from_].get(to, set()), (from_, to)
        except IllegalTransition:
            assert mover not in states.TRANSITIONS[from_].get(to, set()), (from_, to)
        transaction.savepoint_rollback(sid)


def test_a_server_can_report_only_the_states_that_the_table_gives_it(api, for_each_pair):
    registrar = api("worker")
    body = {"type": "WORKER", "name": "w", "instance_id": str(uuid.uuid4())}
    registered = registrar.post("/servers", body).json()
    caller, rows = type(registrar)(registered["token"]), Server.objects.filter(pk=registered["id"])
    codes = dict.fromkeys((ServerState.NOT_RUNNING, ServerState.INACTIVE), "server_not_running")
    codes[ServerState.DISCONNECTED] = "server_disconnected"

    def check(from_, to):
        put(rows.get(), from_)
        answer = caller.post(f"/servers/{registered['id']}/heartbeat", {"state": to})
        by_way_of_terminating = to in states.TERMINATED and ServerState.TERMINATING in states.TRANSITIONS[from_]
        is_reportable = to in states.server_reported_states()
        if (is_reportable and states.is_legal_transition(from_, to, Mover.SERVER)) or by_way_of_terminating:
            assert (answer.status_code, answer.json()["state"]) == (200, to)
        else:
            code = codes.get(from_, "illegal_transition")
            assert (answer.status_code, answer.json()["code"]) == (409, code)
            assert rows.get().state == from_

    for_each_pair(ServerState, check)


def test_a_server_begins_as_created(server):
    server.pk, server.instance_id = uuid.uuid4(), uuid.uuid4()
    with pytest.raises(IntegrityError, match="illegal first state"):
        server.save(force_insert=True)


def test_events_are_append_only(server):
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        ServerEvent.objects.update(reason="another")
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        ServerEvent.objects.all().delete()


def test_a_heartbeat_that_changes_no_state_writes_no_event(worker):
    one = worker()
    before = ServerEvent.objects.count()
    one.beat()
    one.beat(state="RUNNING")
    assert ServerEvent.objects.count() == before


def test_raw_sql_makes_exactly_the_job_transitions_of_the_table(begin, for_each_pair):
    job = begin(step("a"), step("b", "a")).step("b")["job"]

    def write(state):
        ended = state in job_states.TERMINAL
        WorkerJob.objects.filter(pk=job).update(
            state=state,
            attempt_id=uuid.uuid4() if state in job_states.LIVE else None,
            finished_at=ClockTimestamp() if ended else None,
        )

    def check(from_, to):
        for state in way_to(job_states.JOB_TRANSITIONS, JobState.BLOCKED, from_)[1:]:
            write(state)
        assert_is_transition(job_states.JOB_TRANSITIONS, from_, to, write)

    for_each_pair(JobState, check)


def test_only_a_step_that_is_an_execution_runs_without_an_attempt(begin, submit):
    child = {"type": "execution", "name": "inner", "steps": [step("x")]}
    assert begin(step("child", action=child)).states() == {"child": "RUNNING"}
    with pytest.raises(IntegrityError, match="job_held_while_live"), transaction.atomic():
        WorkerJob.objects.filter(pk=submit()["id"]).update(state="RUNNING")


def test_raw_sql_makes_exactly_the_execution_transitions_of_the_table(begin, for_each_pair):
    rows = Execution.objects.filter(pk=begin(step("a")).id)

    def write(state):
        rows.update(state=state, finished_at=ClockTimestamp() if state in job_states.EXECUTION_TERMINAL else None)

    def check(from_, to):
        for state in way_to(job_states.EXECUTION_TRANSITIONS, ExecutionState.RUNNING, from_)[1:]:
            write(state)
        assert_is_transition(job_states.EXECUTION_TRANSITIONS, from_, to, write)

    for_each_pair(ExecutionState, check)


def test_raw_sql_makes_exactly_the_attempt_transitions_of_the_table(worker, submit, for_each_pair):
    submit()
    attempt = worker().hold(running=False)["id"]

    def write(state):
        finished_at = None if state in job_states.LIVE else ClockTimestamp()
        Attempt.objects.filter(pk=attempt).update(state=state, finished_at=finished_at)

    def check(from_, to):
        for state in way_to(job_states.ATTEMPT_TRANSITIONS, AttemptState.CLAIMED, from_)[1:]:
            write(state)
        assert_is_transition(job_states.ATTEMPT_TRANSITIONS, from_, to, write)

    for_each_pair(AttemptState, check)


def test_a_job_has_at_most_one_live_attempt(worker, submit):
    submit()
    attempt = Attempt.objects.get(pk=worker().hold()["id"])
    with pytest.raises(IntegrityError, match="attempt_live_once"):
        Attempt.objects.create(job=attempt.job, number=2, server=attempt.server)


def test_a_client_token_cannot_be_made_with_another_role(db):
    with pytest.raises(ValueError, match="not a valid Role"):
        tokens.create_token("x", "admin")
    with connection.cursor() as cursor, pytest.raises(IntegrityError, match="apitoken_role"):
        cursor.execute(
            "insert into liveness_apitoken (id, name, role, prefix, digest, created_at)"
            " values (uuid7(), 'x', 'admin', 'x', 'x', now())"
        )
