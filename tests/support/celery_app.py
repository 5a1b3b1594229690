"""A user's application, protected by two lines. Its tasks write what they do to the file EVENTS."""

import os
import re
import signal
import sys
import time

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import Celery
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.worker.control import control_command
from kombu import Exchange, Queue

from controlplane.agent.celery import protect
from controlplane.agent.celery.worker import turns

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
if os.environ.get("LETTERS"):
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    app.conf.task_queues = [Queue("letters", Exchange(""), routing_key="letters", queue_arguments=letters)]
if os.environ.get("ACKS_LATE"):
    app.conf.task_acks_late = True
if os.environ.get("YIELD"):
    turns.YIELD = float(os.environ["YIELD"])


ENDS = {
    "memory": MemoryError,
    "recursion": RecursionError,
    "worker_lost": WorkerLostError,
    "time_limit": TimeLimitExceeded,
    "keyboard": KeyboardInterrupt,
    "shutdown": WorkerShutdown,
    "terminate": WorkerTerminate,
}


@control_command()
def go_deaf(panel):
    """Make the worker receive no more messages, as if its prefetch count were full. It still sends heartbeats."""
    panel.consumer.task_consumer.channel.qos.can_consume = lambda: False


def note(id, what):
    with open(os.environ["EVENTS"], "a") as events:
        events.write(f"{id} {what} {time.time()} {os.getpid()}\n")


@app.task(bind=True)
def work(self, name, seconds=0.0):
    """Write a line every 0.1 s, so that tests see how long the task ran. A file with its name ends it early."""
    note(name, "start")
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not os.path.exists(f"{os.environ['EVENTS']}.{name}"):
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
    """Return the header that a task has if it is a job."""
    return self.request.headers["job"]


@app.task(bind=True)
def poison(self, group=True):
    """Kill the worker with all processes, or only the process of this task.

    Wait first, because kombu may lose a message that it has popped and not recorded yet.
    """
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


@app.task
def end_badly(kind):
    """End with an exception that Celery does not treat as a plain failure."""
    note(kind, "start")
    time.sleep(0.3)
    if kind == "exit_at_once":
        os._exit(1)
    if kind == "sys_exit":
        sys.exit(3)
    raise ENDS[kind]("of its own")


@app.task(time_limit=3, acks_on_failure_or_timeout=False)
def too_long(name):
    note(name, "start")
    time.sleep(600)


@app.task(acks_on_failure_or_timeout=False)
def fail_late(seconds):
    note("fail_late", "start")
    time.sleep(seconds)
    raise ValueError("no such order")


@app.task(acks_late=False)
def once():
    return "once"


@app.task
def hold_the_interpreter(name, text):
    """Run a regular expression that backtracks for long and lets no other thread run."""
    note(name, "start")
    re.match(r"(a+)+$", text)
    note(name, "end")


@app.task
def spawn(name, seconds):
    """Start a process in its own session."""
    import subprocess

    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"], start_new_session=True)
    note(name, f"child:{child.pid}")
    child.wait()
