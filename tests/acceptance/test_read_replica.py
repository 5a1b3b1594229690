"""Pages that read ended work from a real standby, and the primary if the standby is behind or cannot be read."""

import re

import psycopg
import pytest

from tests.acceptance.test_keys import SIGN_IN
from tests.support import services
from tests.support.processes import eventually, fleet

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replica")
    with (
        services.Postgresql() as primary,
        services.Standby(primary) as standby,
        fleet(folder, DATABASE_URL=primary.url, DATABASE_READ_URL=standby.url, LIVENESS_TIMEOUT="60") as running,
    ):
        running.primary, running.standby = primary, standby
        running.migrate()
        running.url = running.web()
        running.executor("executor", "--beat")
        running.agent("one", running.url)
        running.session = running.run("-c", SIGN_IN)
        yield running


@pytest.fixture
def paused(plane):
    """Let the standby stand still. It must have everything so far."""
    position = ask(plane.primary, "select pg_current_wal_lsn()")
    eventually(lambda: ask(plane.standby, "select pg_last_wal_replay_lsn() >= %s", *position[0]) == [(True,)])
    ask(plane.standby, "select pg_wal_replay_pause()")
    yield plane
    ask(plane.standby, "select pg_wal_replay_resume()")


def ask(server, question, *values):
    with psycopg.connect(server.url, autocommit=True) as connection:
        found = connection.execute(question, values)
        return found.fetchall() if found.description else []


def page(running, path, cookies=""):
    headers = {"Cookie": f"sessionid={running.session}; {cookies}"}
    answer = running.http.request("GET", f"{running.url}/admin/instance/{path}", headers=headers)
    assert answer.status == 200, answer.data
    return answer.data.decode()


def page_of_the_standby(running, path, cookies=""):
    """Return a page that may read the standby. Ask again if it read the primary, because the standby answered late."""
    return eventually(
        lambda: (shown := page(running, path, cookies)) and "is away" not in page(running, "") and shown,
        why="the standby is read",
    )


def run_job(running, name):
    job = {"action": {"type": "script", "command": "true"}, "name": name}
    made = running.call("POST", f"{running.url}/api/v1/jobs", running.token("client"), job)["id"]
    eventually(lambda: read_job(running, made)["state"] == "COMPLETED", why="it completes")
    return made


def read_job(running, id):
    return running.call("GET", f"{running.url}/api/v1/jobs/{id}", running.token("client"))


def test_what_is_past_comes_from_the_standby_and_the_rest_from_the_primary(paused):
    made = run_job(paused, "after-the-pause")
    assert read_job(paused, made)["state"] == "COMPLETED", "the API reads what the client has written"
    assert "after-the-pause" not in page_of_the_standby(paused, "jobs/?state=COMPLETED")
    assert "after-the-pause" in page(paused, "jobs/"), "live figures are those of the primary"
    assert "COMPLETED" in page(paused, f"jobs/{made}/"), "the standby does not know that it ended"


def test_a_session_reads_the_primary_after_it_changed_something(paused):
    made = run_job(paused, "changed")
    assert "changed" not in page_of_the_standby(paused, "jobs/?state=COMPLETED")
    form = page(paused, "")
    token = re.search('name="csrfmiddlewaretoken" value="([^"]+)"', form)[1]
    answer = paused.http.request(
        "POST",
        f"{paused.url}/admin/instance/poll/",
        fields={"every": "3", "csrfmiddlewaretoken": token},
        encode_multipart=False,
        redirect=False,
        headers={"Cookie": f"sessionid={paused.session}; csrftoken={token}", "Referer": paused.url},
    )
    assert answer.status == 302, answer.data
    changed = re.search("changed_at=[0-9]+", answer.headers["Set-Cookie"])[0]
    assert made in page(paused, "jobs/?state=COMPLETED", changed)
    assert made not in page_of_the_standby(paused, "jobs/?state=COMPLETED", "changed_at=1")


def test_the_overview_shows_how_far_the_standby_is_behind(paused):
    def behind():
        # A standby that answers late is shown as away for a moment.
        shown = re.search("Read replica: ([0-9]+) s behind", page(paused, ""))
        return int(shown[1]) if shown else 0

    eventually(lambda: behind() >= 2, why="the lag grows")


def test_a_standby_that_is_away_is_replaced_by_the_primary(plane):
    made = run_job(plane, "away")
    plane.standby.stop()
    try:
        assert made in page(plane, "jobs/?state=COMPLETED")
        assert "The read replica is away: the primary is read." in page(plane, "")
    finally:
        plane.standby.start()
    eventually(lambda: "Read replica: 0 s behind" in page(plane, ""), why="the standby is read again")
