"""Messages on the two pipes between a Celery worker and its heart process.

A message is one line of JSON: the name of its type, then its fields. The first line to the heart is the `Greeting`.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

MOST = 4000  # largest size in bytes of a message that must not block; a pipe writes up to 4096 bytes atomically
SHORTENED = 200  # characters that each text keeps in a message that is too long


class TaskHeld(NamedTuple):
    """The worker received a message and has not settled it yet. `tag` identifies the delivery."""

    tag: str
    id: str
    name: str
    queue: str
    eta: str | None = None
    retries: int = 0
    root: str | None = None
    parent: str | None = None
    attempt: str = ""
    is_known: bool = False  # it was delivered or tried before, so the control plane may know it already
    args: str | None = None
    acks_late: bool = True  # False: the broker forgets the message when the task begins
    held_for: float = 0.0  # seconds; above 0, an earlier heart may have reported this delivery


class TaskRunning(NamedTuple):
    """The code of a task may run from now on. `pid` is None until a process of the pool has accepted the task."""

    tag: str
    pid: int | None


class TaskEnded(NamedTuple):
    """The worker settled a message. `text` is the result or the error."""

    tag: str
    outcome: str
    seconds: float = 0.0
    text: str | None = None
    traceback: str | None = None
    kept_attempt: str = ""  # id of the attempt, if the worker keeps this end until the order ForgetEnds


class MessagesDropped(NamedTuple):
    """Messages from the worker to its heart were lost, because the heart did not read. All tasks follow again."""


class LoopProgress(NamedTuple):
    """Sign of life of the worker's main loop, twice a second."""

    received: int = -1  # number of messages received since the worker started
    takes: bool = False  # True if the worker consumes and is not full
    queues: Sequence[str] = ()
    dead: int | None = None  # number of requests that no process runs, if they fill all places of the worker


class JobKnown(NamedTuple):
    """Job that the worker sent to its own queue. Timeouts are in seconds."""

    attempt: str
    timeout: float | None


class JobWaiting(NamedTuple):
    """Job that may begin once the control plane has accepted STARTED."""

    attempt: str
    timeout: float | None


class JobNotSent(NamedTuple):
    """Job that did not reach the worker's own queue.

    With a `code` it fails; otherwise it is released for the reason `text`.
    """

    attempt: str
    code: str
    text: str


class ConsumerConnected(NamedTuple):
    """The worker has a new connection to the broker, and consumes."""


class WorkerStopping(NamedTuple):
    """The worker began its warm shutdown."""


class WorkerEnding(NamedTuple):
    """State that the heart reports when the worker's process has ended."""

    state: str


class FailureStored(NamedTuple):
    """The worker stored FAILURE for the quarantined message `key`."""

    key: str
    task: str
    name: str


class Consume(NamedTuple):
    """Order to consume or to stop consuming."""

    is_on: bool


class HoldQueues(NamedTuple):
    """Order to consume all queues but these."""

    names: Sequence[str]


class ShutDown(NamedTuple):
    """Order to begin a warm shutdown."""


class Revoke(NamedTuple):
    """Order to keep a task from beginning, and to end it with a signal if it runs."""

    task: str
    signal: str = "TERM"


class SendJob(NamedTuple):
    """Order to send a claimed job to the worker's own queue."""

    attempt: str
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    timeout: float | None
    headers: dict[str, Any]


class BeginJob(NamedTuple):
    """Order to run the code of a job that waits."""

    attempt: str


class ForgetJob(NamedTuple):
    """Order to forget a job, because the control plane knows its end."""

    attempt: str


class ForgetEnds(NamedTuple):
    """Order to forget the ends of these attempts, because the control plane knows them or need not."""

    attempts: Sequence[str]


class StoreFailure(NamedTuple):
    """Order to store FAILURE for a quarantined message, in the form that kombu keeps in Redis."""

    key: str
    name: str | None
    losses: int
    reason: str
    message: dict[str, Any]


FromWorker = (
    TaskHeld
    | TaskRunning
    | TaskEnded
    | MessagesDropped
    | LoopProgress
    | JobKnown
    | JobWaiting
    | JobNotSent
    | ConsumerConnected
    | WorkerStopping
    | WorkerEnding
    | FailureStored
)
Order = Consume | HoldQueues | ShutDown | Revoke | SendJob | BeginJob | ForgetJob | ForgetEnds | StoreFailure
TYPES: dict[str, Any] = {kind.__name__: kind for kind in (*FromWorker.__args__, *Order.__args__)}


@dataclass(frozen=True)
class Greeting:
    """Description of a worker that its heart receives first."""

    instance: str
    kind: str  # kombu's driver type: "redis", "amqp", …
    connection: Any  # kombu's Connection to the broker, not opened
    exchanges: dict[str, str]
    visibility_timeout: float | None  # seconds, as the application set it
    broker_heartbeat: float  # seconds; 0 means no heartbeats
    url: str
    token: str
    name: str
    own_queue: str | None  # None if the worker takes no jobs
    folder: str | None  # of the results of jobs
    every: float  # seconds between two looks at other workers
    record: str
    max_resubmissions: int
    condemned_for: float
    stuck_after: float
    when_stuck: str
    description: dict[str, Any]  # for the registration
    state: str | None = None  # folder of the files that prove deaths; None: deaths are not proved
    lock: int | None = None  # descriptor of this worker's file; None: its own death cannot be proved
    began: float = 0.0  # uptime of the machine in seconds when the worker started
    ends_namespace: bool = False  # True if the kernel ends all processes of the container together with the worker


_dumps = json.JSONEncoder(default=str).encode  # made once, because json.dumps would make it for each message


def encode(message: FromWorker | Order, most: int | None = None) -> bytes:
    """Return a message as one line. Shorten its texts if the line has more than `most` bytes."""
    line = [type(message).__name__, *message]
    data = _dumps(line).encode() + b"\n"
    if most and len(data) > most:
        line = [field[:SHORTENED] if isinstance(field, str) else field for field in line]
        data = _dumps(line).encode() + b"\n"
    return data


def decode(line: bytes) -> Any:
    """Return the message in a line. Raise ValueError, KeyError or TypeError if the line is not a message."""
    kind, *values = json.loads(line)
    return TYPES[kind](*values)


def encode_greeting(greeting: Greeting) -> bytes:
    values = {field.name: getattr(greeting, field.name) for field in fields(greeting)}
    connection = base64.b64encode(pickle.dumps(greeting.connection)).decode()
    return json.dumps({**values, "connection": connection}).encode() + b"\n"


def decode_greeting(line: bytes) -> Greeting:
    """Return the greeting in a line. Unpickling is safe, because the line comes from the parent of this process."""
    values = json.loads(line)
    connection = pickle.loads(base64.b64decode(values["connection"]))  # noqa: S301 (from our own parent)
    return Greeting(**{**values, "connection": connection})
