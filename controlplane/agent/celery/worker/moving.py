"""Move messages on Redis to a protected worker in one step, instead of popping them.

kombu takes a message with BRPOP and records it with a second call. If a worker is killed or frozen between the two
calls, the message is lost. Here one script moves the message from its queue into the hash of the worker (see
move_script.py). So at every moment the message is in a key from which it can be returned.

A script cannot wait for a message. Instead Redis reports changes of the lists: the worker sends EXISTS on a connection
with CLIENT TRACKING. If all lists are empty, the next publication sends an invalidation message to the worker. A frozen
worker receives this message too, but takes nothing from the list. One publication wakes all idle workers. So each
worker waits for a random time before it runs the script.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import Empty
from time import monotonic, time
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError

from controlplane.agent.celery.broker.access import explain
from controlplane.agent.celery.broker.move_script import DIGEST, SCRIPT
from controlplane.agent.celery.worker import moved_qos
from controlplane.agent.celery.worker.turns import Turns

log = get_logger(__name__)
LOOK_EVERY = 5.0  # seconds between two EXISTS while the lists stay empty, because a lost connection reports nothing
POLL_EVERY = 0.5  # the same, if Redis does not report changes


class MoveRefused(Exception):
    """Redis refuses to move messages to a starting worker, by an access rule or because a key has another type."""


class MessageMover:
    """Receiver of messages for one channel.

    kombu's poller calls `start` and `read` instead of the channel's own methods.
    """

    def __init__(self, channel: Any, set_aside: Callable[[str, str], None], has_room: Callable[[], bool]) -> None:
        self._channel, self._set_aside, self._has_room = channel, set_aside, has_room
        self._wake_loop: Callable[[float], object] | None = None  # called with a delay in seconds
        self._socket: Any = None  # id of the session to which the fields below belong
        self._expected: deque[str] = deque()  # commands whose replies have not arrived yet
        self._reports = True  # Redis reports changes of the lists
        self._is_loaded = False  # True if this session has sent the whole script
        self._queues: dict[str, str] = {}  # queues by the names of their lists
        self._asked_for: list[str] = []
        self._has_more = True  # True if the latest EXISTS found a list
        self._is_woken = False  # True if a list has changed since the latest EXISTS
        # True if the next EXISTS is planned for later, so that other workers go first.
        self._is_planned = self._yields = False
        self._due_at = 0.0  # monotonic
        self._turns = Turns()
        self.is_allowed = False  # Redis has accepted the script before
        self._refused_for = ""

    @classmethod
    def install(cls, consumer: Any, set_aside: Callable[[str, str], None], *, is_allowed: bool) -> MessageMover | None:
        """Move the messages of this consumer from now on. Return None if the channel does not record its messages.

        `set_aside` quarantines a message by its tag and a reason. `is_allowed`: Redis has accepted the script before.
        """
        channel = consumer.task_consumer.channel
        if not channel.ack_emulation:
            log.warning("Messages are not moved, because broker_transport_options turns ack_emulation off")
            return None
        mover = cls(channel, set_aside, lambda: len(state.reserved_requests) < consumer.pool.num_processes)
        mover.is_allowed = is_allowed
        if consumer.hub:
            mover._wake_loop = lambda seconds: consumer.timer.call_after(seconds, lambda: None)
        mover.attach()
        return mover

    def attach(self) -> None:
        """Make the kombu channel receive messages through this object, which moves them by one script."""
        channel, poller = self._channel, self._channel.connection.cycle
        moved_qos.mix_in(channel.qos)
        channel.handlers["BRPOP"] = self.read
        channel._brpop_start = self.start
        channel._brpop_read = self._read_nothing
        register = poller._register_BRPOP

        def register_when_due(registered: Any) -> None:
            if registered is channel and self._is_due():
                channel._in_poll = None
            register(registered)

        poller._register_BRPOP = register_when_due
        client = channel.client
        client.connection = connection = client.connection or client.connection_pool.get_connection()
        # Older versions of redis-py use protocol 2, but Redis reports changes only with protocol 3.
        if str(connection.protocol) != "3":
            connection.protocol = 3
        # Celery may have used this channel before, to greet other workers. The poller watches the new socket only if
        # the earlier socket is closed.
        connection.disconnect()

    def tick(self) -> None:
        """Do the periodic work, twice a second, in the main loop."""
        self._channel.qos.clean_index()

    def expects(self) -> bool:
        """Return True if Redis may have moved a message that this process has not read yet."""
        return bool(self._expected) and self._channel.client.connection._sock is self._socket

    # Used by kombu's poller

    def start(self, timeout: float | None = None) -> None:
        """Send the script and EXISTS, if the prefetch count allows a message and no reply is missing."""
        channel, connection = self._channel, self._channel.client.connection
        queues = channel._queue_cycle.consume(len(channel.active_queues))
        if not queues:
            return
        commands: list[tuple[Any, ...]] = []
        if connection._sock is not self._socket:
            commands = self._begin(connection)
        if not self._expected:
            prefix, steps = channel.global_keyprefix, channel.priority_steps
            self._asked_for = list(channel._active_queues)
            self._queues = {f"{prefix}{channel._q_for_pri(queue, step)}": queue for step in steps for queue in queues}
            if self._has_more:
                commands.append(self._move_command(prefix))
            commands.append(("EXISTS", *self._queues))
            self._expected += ["track", "move", "look"][-len(commands) :]
            self._is_planned = self._yields = False
            channel._brpop_sent_at = monotonic()
            connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        channel._in_poll = connection

    def read(self, **options: Any) -> bool:
        """Read the replies of Redis and deliver a moved message. Raise Empty if no message was moved."""
        channel, connection = self._channel, self._channel.client.connection
        try:
            moved, refused = self._receive(connection)
        except channel.connection_errors:
            connection.disconnect()
            raise
        channel._brpop_sent_at = channel._in_poll = None
        channel._flush_brpop_reauth()
        if connection._sock is self._socket:
            channel._in_poll = connection
        self._plan()
        if refused is not None:
            self._refuse(refused)
        if moved is None:
            if self._is_due() and channel._in_poll and channel.qos.can_consume():
                self.start()  # ask again at once, before another worker does
            raise Empty
        self._deliver(*moved)
        return True

    def _read_nothing(self, **options: Any) -> bool:
        """Leave the replies unread, because the channel closes. A moved message is returned from the hash later."""
        raise Empty

    # Inside

    def _begin(self, connection: Any) -> list[tuple[Any, ...]]:
        """Begin a new session, and return its first commands."""
        self._socket = connection._sock
        self._expected.clear()
        self._is_loaded = self._is_woken = False
        self._has_more = True
        connection._parser.set_invalidation_push_handler(self._on_change)
        return [("CLIENT", "TRACKING", "ON", "NOLOOP")]

    def _move_command(self, prefix: str) -> tuple[Any, ...]:
        qos = self._channel.qos
        keys = [*self._queues, f"{prefix}{qos.unacked_key}", f"{prefix}{qos.unacked_index_key}"]
        script = ("EVALSHA", DIGEST) if self._is_loaded else ("EVAL", SCRIPT)
        self._is_loaded = True
        return (*script, len(keys), *keys, time())

    def _is_due(self) -> bool:
        if self._expected:
            return False
        if monotonic() >= self._due_at or (self._yields and self._has_room()):
            return True
        return self._asked_for != self._channel._active_queues

    def _on_change(self, message: Any) -> None:
        """Record that a list has changed. redis-py calls this for each invalidation message."""
        self._is_woken = True

    def _receive(self, connection: Any) -> tuple[tuple[str, bytes, str] | None, ResponseError | None]:
        """Read all missing replies. Return the moved message and the error of a refused command, if any."""
        moved = refused = None
        asked, was_woken = tuple(self._expected), self._is_woken
        while self._expected:
            kind = self._expected.popleft()
            try:
                reply = connection.read_response()
            except NoScriptError:
                self._is_loaded = False
                continue
            except ResponseError as error:
                if kind == "track":
                    self._poll_instead(error)
                else:
                    refused = error
                continue
            if kind == "move" and reply:
                moved = bytes_to_str(reply[0]), reply[1], bytes_to_str(reply[2])
            elif kind == "look":
                # All changes reported until now happened before this EXISTS.
                self._is_woken, self._has_more = False, reply > 0 or not self._is_loaded
        self.is_allowed |= bool(asked) and refused is None
        if moved:
            self._turns.won()
        elif "move" in asked or (asked and was_woken and not self._has_more):
            self._turns.lost()
        while connection._sock and connection.can_read(timeout=0):
            connection.read_response(push_request=True)
        return moved, refused

    def _plan(self) -> None:
        """Plan the next commands: at once, soon after a change, or some seconds later."""
        if self._is_planned:
            return
        now = monotonic()
        if self._has_more:
            self._due_at = now
        elif not self._is_woken:
            self._due_at = now + (LOOK_EVERY if self._reports else POLL_EVERY)
        else:
            self._is_planned, self._yields = True, not self._has_room()
            self._has_more = self._turns.is_alone
            pause = self._turns.pause(is_busy=self._yields) if self._wake_loop else 0.0
            self._due_at = now + pause
            if self._wake_loop:
                self._wake_loop(pause)

    def _deliver(self, name: str, item: bytes, tag: str) -> None:
        channel = self._channel
        queue, qos = self._queues[name], channel.qos
        channel._queue_cycle.rotate(queue)
        qos.moved = tag
        try:
            channel.connection._deliver(loads(bytes_to_str(item)), queue)
        except Exception as error:
            if qos.moved is None:
                raise  # the message was read, so the error has another cause
            log.error("A message in %s cannot be read: %r. It begins with %r", queue, error, item[:200])
            if tag:
                self._set_aside(tag, f"it cannot be read: {error!r}")
        finally:
            qos.moved = None

    def _refuse(self, error: ResponseError) -> None:
        """Raise the error.

        If Redis accepted the script before, plan another try instead, so that running tasks do not end.
        """
        if isinstance(error, ReadOnlyError):  # the primary has moved, so connect again
            raise ConnectionError(f"Redis: {error}") from error
        if not self.is_allowed:
            raise MoveRefused(f"Messages cannot be moved. {explain(error)}") from error
        if str(error) != self._refused_for:
            log.error("Messages cannot be moved. %s", explain(error))
        self._refused_for = str(error)
        self._due_at = monotonic() + LOOK_EVERY

    def _poll_instead(self, error: ResponseError) -> None:
        if self._reports:
            log.warning("Redis does not report new messages: %s. This worker asks every %s s", error, POLL_EVERY)
        self._reports = False
