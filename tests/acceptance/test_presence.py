"""The control plane's own processes: the Instance page shows them from start to end."""

import os
import signal
import socket

import psutil
import psycopg
import pytest
import urllib3
from psycopg.rows import namedtuple_row

from tests.support.processes import eventually, fleet

pytestmark = pytest.mark.acceptance

HOST = socket.gethostname()
ENDED_WELL = ["RUNNING", "TERMINATING", "TERMINATED_GRACEFULLY"]


class Servers:
    """Read servers from the database."""

    def __init__(self, url):
        self.connection = psycopg.connect(url, autocommit=True, row_factory=namedtuple_row)

    def named(self, like):
        return self.connection.execute(
            "select * from liveness_server where name like %s order by id", [like]
        ).fetchall()

    def running(self, like, count=1):
        """Return the servers of this name if there are `count` and all are RUNNING, otherwise False."""
        servers = self.named(like)
        return len(servers) == count and all(server.state == "RUNNING" for server in servers) and servers

    def cut_off(self):
        """End every other connection, as a restart of the database does. Return the time."""
        self.connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        return self.connection.execute("select clock_timestamp() as at").fetchone().at

    def states(self, server):
        """Return the states that the server reported itself, and those that the liveness check set."""
        events = self.connection.execute(
            "select to_state, actor from liveness_serverevent where server_id = %s order by id", [server.id]
        ).fetchall()
        return [event.to_state for event in events if event.actor == "server"], [
            event.to_state for event in events if event.actor == "liveness"
        ]


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("presence")


@pytest.fixture
def own(folder):
    """Start a web server with two processes, an executor with a beat, and another beat."""
    # Only the killed process may be silent for so long.
    with fleet(folder, CELERY_BROKER_URL="filesystem://", LIVENESS_TIMEOUT="10") as own:
        own.url = own.web("web", "--workers", "2", "--respawn-failed-workers")
        own.servers = Servers(own.env["DATABASE_URL"])
        yield own
        own.servers.connection.close()


def children(process):
    return {child.pid for child in psutil.Process(process.pid).children(recursive=True)}


def test_own_processes_are_servers_from_their_start_to_their_end(own):
    servers = own.servers
    webs = eventually(lambda: servers.running("web@%", 2), why="two web processes")
    assert {(web.type, web.hostname, web.version) for web in webs} == {("WEBSERVER", HOST, "0.1.0")}
    assert {web.name for web in webs} == {f"web@{HOST}-{web.pid}" for web in webs}
    assert {web.pid for web in webs} <= children(own.processes["web"])

    own.env["LIVENESS_WITNESS_URL"] = own.url
    own.executor("executor", "--beat")
    (executor,) = eventually(lambda: servers.running("executor@%"), why="an executor")
    (embedded,) = eventually(lambda: servers.running("scheduler@%"), why="its beat")
    assert (executor.type, executor.name, executor.pid) == (
        "EXECUTOR", f"executor@{HOST}", own.processes["executor"].pid,
    )  # fmt: skip
    assert embedded.type == "SCHEDULER"
    assert embedded.pid in children(own.processes["executor"])
    eventually(
        lambda: servers.running("executor@%")[0].witnessed_at is not None, why="with WITNESS_URL it beats over HTTP"
    )
    assert embedded.witnessed_at is None

    own.beat()
    _, beat = eventually(lambda: servers.running("scheduler@%", 2), why="a beat by itself")
    assert (beat.type, beat.pid) == ("SCHEDULER", own.processes["beat"].pid)

    at = servers.cut_off()
    eventually(lambda: all(server.last_heartbeat_at > at for server in servers.named("%")), why="all are heard again")

    killed, other = webs
    os.kill(killed.pid, signal.SIGKILL)
    eventually(lambda: "DISCONNECTED" in servers.states(killed)[1], why="the check finds the killed web process")
    eventually(lambda: [web.state for web in servers.named("web@%")][1:] == ["RUNNING"] * 2, why="another in its place")
    assert servers.states(killed)[0] == ["RUNNING"]
    for alive in (other, executor, embedded, beat):
        assert servers.states(alive) == (["RUNNING"], [])
    assert own.answers(f"{own.url}/livez")

    for name in ("beat", "web", "executor"):
        own.processes[name].send_signal(signal.SIGTERM)
        own.processes[name].wait(60)
    ended = [*servers.named("web@%")[1:], executor, embedded, beat]
    assert [servers.states(server)[0] for server in ended] == [ENDED_WELL] * 5


def test_behind_tls_local_agents_use_http_and_others_are_redirected_to_https(folder):
    with fleet(folder, BEHIND_TLS="1") as own:
        url = own.web()
        own.agent("one", url)
        own.servers = Servers(own.env["DATABASE_URL"])
        eventually(lambda: own.servers.running("one"), why="an agent on the same machine registers")
        eventually(lambda: own.servers.running("web@%")[0].witnessed_at, why="the web process hears itself")
        assert urllib3.request("GET", f"{url}/admin/", redirect=False).headers["Location"].startswith("https://")
        own.servers.connection.close()


def test_a_process_that_cannot_register_serves_and_ends_as_usual(folder):
    with fleet(folder, DATABASE_URL="postgresql://nobody@127.0.0.1:1/nothing", SECRET_KEY="x" * 50) as deaf:
        url = deaf.web()
        eventually(lambda: f"web@{HOST}-" in deaf.logs(), why="it logs that it cannot heartbeat")
        assert deaf.answers(f"{url}/livez")
        deaf.processes["web"].terminate()
        assert deaf.processes["web"].wait(60) == 0
        assert deaf.logs().count("cannot heartbeat") == 1
