"""The application of a user, protected by two lines. Its tasks append what they do to the file LEDGER."""

import os
import re
import signal
import sys
import time

from celery import Celery
from celery.worker.control import control_command

from controlplane.agent.celery import protect

app = Celery("orders", broker=os.environ["BROKER"], backend=os.environ.get("BACKEND") or None)
if os.environ.get("PROTECTED", "1") == "1":
    protect(app)
app.conf.update(
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    task_default_queue="orders",
    worker_prefetch_multiplier=int(os.environ.get("PREFETCH", "4")),
    worker_proc_alive_timeout=60,
)
if os.environ.get("VISIBILITY"):
    app.conf.broker_transport_options = {"visibility_timeout": int(os.environ["VISIBILITY"])}
if os.environ.get("ACKS_LATE"):
    app.conf.task_acks_late = True


@control_command()
def go_deaf(panel):
    """As with a prefetch credit that was lost: the worker beats, answers, and never takes a message again."""
    panel.consumer.task_consumer.channel.qos.can_consume = lambda: False


def note(id, what):
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(f"{id} {what} {time.time()} {os.getpid()}\n")


@app.task(bind=True)
def work(self, name, seconds=0.0):
    """Ticks in between, so that it can be seen how long it lived. A file of its name ends it before its time."""
    note(name, "start")
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not os.path.exists(f"{os.environ['LEDGER']}.{name}"):
        time.sleep(min(0.1, left))
        note(name, "tick")
    note(name, "end")
    return name


@app.task
def nothing():
    return None


@app.task
def add(numbers, more=0):
    return sum(numbers) + more


@app.task(bind=True)
def about(self):
    """What a task that is a job knows of it."""
    return self.request.headers["job"]


@app.task(bind=True)
def poison(self, group=True):
    """Kills its worker, main process and all; or its own process alone. Not at once: a message that kombu has popped
    and not recorded in that moment would be nobody's."""
    note("poison", "start")
    time.sleep(0.5)
    if group:
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(bind=True, max_retries=2)
def flaky(self, name):
    note(name, "start")
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    note(name, "end")


@app.task
def fail():
    raise ValueError("no such order")


@app.task(acks_late=False)
def once():
    return "once"


@app.task
def hold_the_interpreter(name, text):
    """A regular expression that backtracks for long, and never lets another thread run."""
    note(name, "start")
    re.match(r"(a+)+$", text)
    note(name, "end")


@app.task
def spawn(name, seconds):
    """A process of its own in a session of its own."""
    import subprocess

    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"], start_new_session=True)
    note(name, f"child:{child.pid}")
    child.wait()
