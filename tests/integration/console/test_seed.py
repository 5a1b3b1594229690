"""Made-up servers and jobs look like real ones."""

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from jobs.models import Attempt, LateReport, WorkerJob
from jobs.services import seeding
from jobs.states import JobState
from liveness import states
from liveness.models import Heartbeat, Server, ServerEvent
from liveness.services import tokens
from liveness.states import ServerState

OF_STEPS = {JobState.BLOCKED, JobState.SKIPPED}


@pytest.fixture
def seeded(clock, db):
    """Make a hundred servers and two thousand jobs. Return the reported progress."""
    progress = []
    seeding.seed_database(100, 2000, report_progress=lambda what, done: progress.append((what, done)))
    return progress


def count(condition):
    with connection.cursor() as cursor:
        cursor.execute(f"select count(*) from jobs_workerjob j where {condition}")  # noqa: S608
        return cursor.fetchone()[0]


def test_every_state_is_among_them(seeded):
    assert seeded == [("servers", 100), ("jobs", 2000)]
    assert set(Server.objects.values_list("state", flat=True)) == set(ServerState)
    assert set(WorkerJob.objects.values_list("state", flat=True)) == set(JobState) - {
        JobState.BLOCKED,
        JobState.SKIPPED,
    }
    assert LateReport.objects.exists()
    assert Heartbeat.objects.count() > 5000


def test_a_made_up_job_has_as_many_attempts_as_it_counts(seeded):
    assert count("true") == 2000
    of_it = "from jobs_attempt a where a.job_id = j.id"
    assert count(f"attempt_count <> (select count(*) {of_it})") == 0
    assert count(f"resubmissions <> (select count(*) {of_it} and a.state = 'RESUBMITTED')") == 0
    assert (
        count(f"attempt_id is not null and not exists (select {of_it} and a.id = j.attempt_id and a.state = j.state)")
        == 0
    )
    assert count(f"exists (select {of_it} and a.finished_at > coalesce(j.finished_at, clock_timestamp()))") == 0
    assert count("finished_at > clock_timestamp() or available_at > clock_timestamp()") == 0


def test_no_made_up_server_holds_more_than_it_may_and_only_running_ones_hold(seeded):
    live = Attempt.objects.filter(finished_at=None).values_list("server_id", "server__state", "server__max_concurrent")
    held = {}
    for server, state, most in live:
        assert state == "RUNNING"
        held[server] = held.get(server, 0) + 1
        assert held[server] <= most


def test_events_lead_each_made_up_server_to_where_it_is(seeded):
    for server in Server.objects.all():
        state = states.INITIAL
        for event in ServerEvent.objects.filter(server_id=server.pk):
            assert event.from_state == state
            assert event.to_state in states.TRANSITIONS[state]
            state = event.to_state
        assert state == server.state


def test_the_first_states_are_guarded_again_afterwards(clock):
    with transaction.atomic():
        seeding.seed_database(5, 0)
    owner = tokens.find_token(tokens.create_token("a client", "client"))
    with connection.cursor() as cursor:
        cursor.execute("select set_config('pgtrigger.ignore', null, true)")  # as after the transaction of the seeding
    with pytest.raises(DatabaseError, match="illegal first state"), transaction.atomic():
        WorkerJob.objects.create(owner=owner, state="RUNNING", attempt_id=owner.pk, fingerprint=b"", action={})


def test_where_somebody_is_nothing_is_made_up(worker, capsys):
    worker()
    with pytest.raises(CommandError, match="Use an empty one, or pass --force"):
        call_command("seed", servers=5, jobs=10)
    assert Server.objects.count() == 1
    assert WorkerJob.objects.count() == 0


def test_no_server_at_all_is_refused(db):
    with pytest.raises(CommandError, match="must be at least 1"):
        call_command("seed", servers=0, jobs=10)


def test_the_command_prints_what_it_made_up_and_adds_more_with_force(committed, capsys):
    call_command("seed", servers=5, jobs=40)
    assert "Created 5 fake servers and 40 fake jobs" in capsys.readouterr().out
    with pytest.raises(CommandError):
        call_command("seed", servers=5, jobs=40)
    call_command("seed", servers=5, jobs=40, force=True)
    assert (Server.objects.count(), WorkerJob.objects.count()) == (10, 80)
