"""The log of a real executor."""

import pytest

from tests.acceptance.test_suspended import BEAT, DEAD
from tests.support.processes import eventually, fleet

pytestmark = pytest.mark.acceptance

TRANSITIONS = ("heartbeat is stale: last seen", "Server dead: alive → DISCONNECTED", "Server dead: lost → NOT_RUNNING")


@pytest.mark.parametrize("level", ["INFO", "ERROR"])
def test_an_executor_logs_transitions_at_its_log_level(tmp_path_factory, level):
    folder = tmp_path_factory.mktemp("log")
    with fleet(folder, CELERY_BROKER_URL="filesystem://", LOG_LEVEL=level) as running:
        running.web()
        running.executor("one", *BEAT)
        with running.connected() as database:
            eventually(lambda: database.execute("select reading > 1 from liveness_clock").fetchone()[0])
            database.execute(DEAD)
            state = "select state from liveness_server where name = 'dead'"
            eventually(lambda: database.execute(state).fetchone()[0] == "INACTIVE", why="the dead server is retired")
        log = (folder / "one.log").read_text()
        assert [line in log for line in TRANSITIONS] == [level == "INFO"] * 3
        assert "jobs.tasks" not in log, "ticks are not logged"
        running.processes["one"].terminate()
        assert running.processes["one"].wait(60) == 0
