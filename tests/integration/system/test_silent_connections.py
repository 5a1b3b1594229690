"""Connections to the database or the broker that go silent without being closed cost only seconds."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from django.db import OperationalError, connections

from controlplane.core.database import errors, silence
from controlplane.core.notifications import Listener
from controlplane.core.threads import Threads
from tests.support.connecting import connection_parameters
from tests.support.processes import beside, eventually
from tests.support.proxy import SilencingProxy

WITHIN = 20
"""Seconds; about 2.5 are usual."""


@contextmanager
def connected(proxy, **options):
    own = connections.create_connection("default")
    host, port = proxy.url.partition("@")[2].partition("/")[0].split(":")
    options = {**own.settings_dict["OPTIONS"], "pool": False, **options}
    own.settings_dict = {**own.settings_dict, "HOST": host, "PORT": port, "USER": "postgres", "OPTIONS": options}
    own._connection_pools = {}
    try:
        yield own
    finally:
        own.close()
        if own.pool:
            own.pool.close()


@pytest.fixture
def proxy(transactional_db):
    with SilencingProxy(beside(connection_parameters()["dbname"])) as proxy:
        yield proxy


def run(own, statement):
    with own.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.parametrize("pool", [False, {"min_size": 0, "max_size": 2}], ids=["single", "pool"])
def test_a_statement_over_a_silent_connection_fails_soon_and_the_next_one_works(proxy, pool):
    with connected(proxy, pool=pool) as own:
        run(own, "select 1")
        proxy.silence()
        began = time.monotonic()
        with pytest.raises(OperationalError) as raised:
            run(own, "select 2")
        assert time.monotonic() - began < WITHIN
        assert errors.classify(raised.value) is errors.UNREACHABLE
        run(own, "select 3")


def test_a_statement_that_takes_long_is_no_silence(proxy):
    with connected(proxy) as own:
        run(own, f"select pg_sleep({3 * silence.SUSPECT_AFTER})")


def test_where_postgresql_cannot_be_asked_nothing_is_cut(proxy, monkeypatch):
    def refuse(*_, **__):
        raise OSError("There is a pooler between here and PostgreSQL")

    monkeypatch.setattr(silence.SilenceWatch, "_ask", refuse)
    with connected(proxy) as own:
        run(own, f"select pg_sleep({2 * silence.SUSPECT_AFTER})")


def test_a_listener_over_a_silent_connection_listens_again(proxy, monkeypatch):
    monkeypatch.setattr("controlplane.core.notifications.PATIENCE", 0.2)
    heard = threading.Semaphore(0)
    with connected(proxy) as own:
        monkeypatch.setattr("controlplane.core.notifications.make_direct_connection", lambda: own)
        listener = Listener("silent_connections", lambda content: heard.release())
        listener.start()
        try:
            assert heard.acquire(timeout=WITHIN), "it listens"
            proxy.silence()
            assert heard.acquire(timeout=WITHIN), "it listens again"
        finally:
            listener.close()
            listener.join(WITHIN)


def test_a_call_that_was_given_up_before_it_got_a_thread_is_not_made():
    import asyncio

    async def give_up():
        threads, free, done = Threads(1, "test"), threading.Event(), []
        first = threads.run(lambda: free.wait(10))
        second = threads.run(lambda: done.append("second"))
        second.cancel()
        free.set()
        await first
        await threads.run(lambda: done.append("third"))
        return done

    assert asyncio.run(give_up()) == ["third"]


CLOSER = """
import os, signal, sys, time
from multiprocessing import get_context
from threading import Event, Thread
ended = Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
signal.signal(signal.SIGHUP, lambda *_: None)

def work():
    from controlplane.observability import resumption
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resumption.watch_parent()
    print("ready", flush=True)
    while True:
        time.sleep(0.1)

child = get_context("fork").Process(target=work)
child.start()
Thread(target=child.join, daemon=True).start()
ended.wait()
child.kill()
"""


@pytest.mark.parametrize("whole_group", [True, False], ids=["both", "parent"])
def test_a_web_process_that_got_sigterm_while_it_was_stopped_ends(whole_group):
    """Imitate granian: the parent's main thread waits for an event, and another thread waits for the worker."""
    send = os.killpg if whole_group else os.kill
    for _ in range(4):  # by chance the signal may wake the main thread
        process = subprocess.Popen([sys.executable, "-c", CLOSER], stdout=subprocess.PIPE, start_new_session=True)
        try:
            process.stdout.readline()
            send(process.pid, signal.SIGSTOP)
            time.sleep(0.6)
            os.kill(process.pid, signal.SIGTERM)
            time.sleep(0.3)
            send(process.pid, signal.SIGCONT)
            eventually(lambda process=process: process.poll() is not None, within=WITHIN, why="it ends")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()


@pytest.mark.parametrize(("timeout", "interval", "seconds"), [("8", "1", 2), ("45", "3", 5), ("4", "1", 2)])
def test_an_attempt_to_connect_leaves_time_for_another_within_the_timeout(timeout, interval, seconds):
    """A lost packet while a web process and an executor connected cost them 5 s of a timeout of 8 s."""
    program = (
        "import django; django.setup(); from django.db import connection as c; options = c.settings_dict['OPTIONS'];"
        "print(c.get_connection_params()['connect_timeout'], options['pool']['timeout'])"
    )
    environment = {
        **os.environ, "LIVENESS_TIMEOUT": timeout, "LIVENESS_HEARTBEAT_INTERVAL": interval, "LIVENESS_INTERVAL": "1",
        "DATABASE_POOL_SIZE": "8", "DJANGO_SETTINGS_MODULE": "controlplane.settings",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(seconds)] * 2


def test_a_watch_is_stopped_although_its_thread_ends_at_that_moment(monkeypatch):
    watch, own = silence.SilenceWatch(), os.getpid()
    watch._start()
    thread = watch._thread

    def look_after_its_end():
        thread.join(WITHIN)
        return own

    monkeypatch.setattr(os, "getpid", look_after_its_end)
    watch.stop()
    assert not thread.is_alive() and watch._thread is None
