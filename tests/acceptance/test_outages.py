"""Outages of parts of the control plane, on real processes.

No live server is disconnected because of an outage, however long. Dead servers are found after it.
"""

import time

import psutil
import psycopg
import pytest

from tests.support import services
from tests.support.processes import SHORT, eventually, fleet

pytestmark = [pytest.mark.acceptance, pytest.mark.exhaustive]

CROWD = 50
TIMEOUT, INTERVAL = 3.0, float(SHORT["LIVENESS_INTERVAL"])


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Start a control plane with separate processes, as on many machines, and a crowd of servers."""
    folder = tmp_path_factory.mktemp("outages")
    with (
        services.Postgresql() as database,
        services.Redis(folder) as broker,
        fleet(
            folder, DATABASE_URL=database.url, CELERY_BROKER_URL=broker.url, LIVENESS_TIMEOUT=f"{TIMEOUT:g}"
        ) as running,
    ):
        running.database, running.broker = database, broker
        running.migrate()
        running.url = running.web()
        running.executor("executor", "--beat")
        token = running.token("worker")
        running.start("crowd", "-m", "tests.support.crowd", running.url, str(CROWD), "crowd", CONTROLPLANE_TOKEN=token)
        eventually(lambda: counted(running, "state = 'RUNNING'") == CROWD, why="the crowd runs")
        yield running


def query(running, statement, params=None):
    with psycopg.connect(running.database.url) as connection:
        return connection.execute(statement, params).fetchall()


def pids(running, name):
    """Return the live processes of a part."""
    parent = psutil.Process(running.processes[name].pid)
    return [parent.pid, *(child.pid for child in parent.children(recursive=True))]


def counted(running, condition):
    return query(running, f"select count(*) from liveness_server where type = 'INDEXER' and {condition}")[0][0]  # noqa: S608


def lost(running):
    """Return the disconnected servers, except those that a test killed itself."""
    return query(
        running,
        "select s.name, s.type, s.state_reason from liveness_server s where s.disconnected_observed is not null"
        " and s.name <> 'doomed-0' and s.type not in ('EXECUTOR', 'SCHEDULER')"
        " and not (s.type = 'WEBSERVER' and s.pid <> all(%s))",
        [pids(running, "web")],
    )


def advances(running):
    """Return True if observed time advances and the heartbeats of the whole crowd arrive."""
    (first,) = query(running, "select reading from liveness_clock")
    eventually(lambda: query(running, "select reading from liveness_clock")[0][0] > first[0] + 2 * TIMEOUT)
    eventually(lambda: counted(running, "last_heartbeat_at > clock_timestamp() - interval '2 s'") >= CROWD)


def wait(seconds):
    """Sleep for the length of an outage. Nothing is expected to be done by then."""
    time.sleep(seconds)


def test_an_outage_of_the_web_tier(everything):
    everything.kill("web")
    wait(5 * TIMEOUT)
    everything.web(port=int(everything.url.rpartition(":")[2]))
    advances(everything)
    assert lost(everything) == []


def test_an_outage_of_the_database(everything):
    everything.database.stop()
    wait(4 * TIMEOUT)
    everything.database.start()
    advances(everything)
    assert lost(everything) == []


def test_an_outage_of_the_executor_and_of_the_broker_whose_queue_is_lost(everything):
    everything.kill("executor")
    everything.broker.stop()
    wait(4 * TIMEOUT)
    everything.broker.start()
    everything.executor("executor", "--beat")
    advances(everything)
    assert lost(everything) == []


def test_a_dead_server_is_found_within_timeout_and_two_intervals_of_observed_time(everything):
    token = everything.token("worker")
    everything.start("doomed", "-m", "tests.support.crowd", everything.url, "1", "doomed", CONTROLPLANE_TOKEN=token)
    eventually(lambda: counted(everything, "state = 'RUNNING'") == CROWD + 1, why="the doomed runs")
    advances(everything)
    everything.kill("doomed")
    eventually(
        lambda: counted(everything, "disconnected_observed is not null"), within=6 * TIMEOUT, why="the dead is found"
    )
    assert lost(everything) == []
    rows = query(
        everything,
        "select disconnected_observed - heard_observed from liveness_server"
        " where disconnected_observed is not null and type = 'INDEXER'",
    )
    assert len(rows) == 1
    assert TIMEOUT < rows[0][0] <= TIMEOUT + 2 * 1.5 * INTERVAL
