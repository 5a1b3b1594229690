"""A project that includes the control plane keeps its own Celery application."""

import os
import subprocess
import sys

import pytest

from controlplane.celery import app, use_folder_broker
from tests.support.standin import ROOT

HOST = """
import sys
import django
from celery import Celery, _state, shared_task, signals

host = Celery("host", broker="memory://", set_as_current=True)
count = lambda: {name: [one[1] for one in signal.receivers or []] for name, signal in vars(signals).items()
                 if hasattr(signal, "receivers")}
before = count()
django.setup()
host.autodiscover_tasks(force=True)


@shared_task(name="host.add")
def add(one, other):
    return one + other


assert add.app is host and _state.get_current_app() is host
assert count() == before, "receivers of signals"
assert "controlplane.celery" not in sys.modules
tasks = (
    "check_liveness", "count_history", "count_stored_bytes", "evaluate_triggers", "prune", "run_batches", "send_alerts",
    "sweep_jobs",
)
ours = [f"jobs.tasks.{name}" for name in tasks]
assert sorted(name for name in host.tasks if name.startswith(("jobs.", "controlplane.", "liveness."))) == ours

from controlplane.celery import app  # even then

assert sorted(name for name in app.tasks if name.startswith("jobs.")) == ours
assert add.app is host and _state.get_current_app() is host
assert add.apply((1, 2)).get() == 3 and host.tasks["host.add"].app is host
receivers = [one for signal in vars(signals).values() if hasattr(signal, "receivers") for one in signal.receivers or []
        if str(getattr(one[1], "__module__", "")).startswith(("controlplane", "jobs", "liveness"))]
assert receivers == [], receivers
print("as it was")
"""


def test_a_hosts_celery_application_shared_tasks_and_signals_are_unchanged():
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HOST], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip().endswith("as it was"), done.stderr


@pytest.mark.parametrize(("interval", "polls_every"), [(0.1, 0.05), (0.4, 0.2), (5, 0.2)])
def test_no_tick_of_a_check_waits_in_a_folder_for_the_next_one(settings, tmp_path, interval, polls_every):
    before = app.conf.broker_transport_options
    settings.LIVENESS = {**settings.LIVENESS, "INTERVAL": interval}
    try:
        use_folder_broker(tmp_path / "broker")
        assert app.conf.broker_transport_options["polling_interval"] == polls_every
    finally:
        app.conf.broker_transport_options = before
