"""Suspended executors and schedulers with wrong clocks: the liveness checks continue."""

import os
import signal

import psycopg
import pytest

from tests.support.processes import eventually, fleet

pytestmark = pytest.mark.acceptance

BEAT = ["--beat"]
DEAD = """
insert into liveness_apitoken (name, role, prefix, digest) values ('of the dead', 'worker', '', 'none');
insert into liveness_server (type, name, token_id, instance_id, heartbeat_interval, timeout, termination_grace_period,
                             worker_task_restart_strategy, heard_observed, created_observed, last_heartbeat_at)
select 'WORKER', 'dead', id, uuid7(), 1, 2, 1, 'IMMEDIATELY', -100, -100, clock_timestamp() from liveness_apitoken
 where name = 'of the dead'
"""


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("suspended")


@pytest.fixture
def fleet_of_two(folder):
    """Start a web server, which is the witness, and leave room for executors. `ask` reads the database."""
    with fleet(folder, CELERY_BROKER_URL="filesystem://", DATABASE_IDLE_TIMEOUT="2s") as running:
        running.web()
        with running.connected() as connection:
            running.ask = lambda statement: connection.execute(statement).fetchone()
            running.do = connection.execute
            yield running


def ticks_go_on(running):
    before = running.ask("select tick from liveness_clock")[0]
    eventually(lambda: running.ask("select tick from liveness_clock")[0] >= before + 3, why="checks go on")


@pytest.mark.parametrize(
    "table", ["liveness_brake", "liveness_serverevent", pytest.param("liveness_tally", marks=pytest.mark.exhaustive)]
)
def test_an_executor_suspended_during_a_check_does_not_stop_the_others(fleet_of_two, table):
    """Suspend it while it waits for a table: during the brake's decision, or while it holds a server's lock."""
    running = fleet_of_two
    running.executor("one", *BEAT)
    ticks_go_on(running)
    with psycopg.connect(running.env["DATABASE_URL"]) as holder:
        holder.execute(f"lock table {table} in exclusive mode")
        running.do(DEAD)
        waiting = f"select from pg_locks where relation = '{table}'::regclass and not granted"
        eventually(lambda: running.ask(waiting) is not None, why="the check waits")
        os.killpg(running.processes["one"].pid, signal.SIGSTOP)
    running.executor("two", *BEAT)
    ticks_go_on(running)
    lost = "select state from liveness_server where name = 'dead'"
    eventually(lambda: running.ask(lost)[0] != "CREATED", why="the other disconnects whom the first had locked")


@pytest.mark.parametrize("clock", ["300", "back", pytest.param("-300", marks=pytest.mark.exhaustive)])
def test_a_scheduler_whose_clock_is_wrong_or_is_set_back_stops_no_check(fleet_of_two, clock):
    running = fleet_of_two
    running.executor("one")
    running.start("beat", "-W", "ignore", "-m", "tests.support.skewed_beat", clock)
    ticks_go_on(running)
    swept = "select count(*) from liveness_timetable where task = 'sweep_jobs'"
    eventually(lambda: running.ask(swept)[0] == 1, why="sweeps too")
    eventually(lambda: running.ask("select clock_timestamp() - min(at) < '5 s' from liveness_timetable"
                                   " where task <> 'prune'")[0])  # fmt: skip
