"""Selectors of servers with their silence, and the times at which they are lost and their attempts are recovered."""

from datetime import datetime
from functools import cache
from typing import Any

from django.db.models import BooleanField, FloatField, Func, Prefetch, QuerySet
from django.db.models.functions import Coalesce

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.sql_book import compose_statement
from controlplane.core.statements import SqlExpression
from liveness.conf import conf
from liveness.models import OWN_DIGEST, Server
from liveness.selectors.clock import SILENCE
from liveness.sql import sql


def servers_with_silence() -> QuerySet[Server]:
    """Return servers with these values, as of this query:

    - `silence`: seconds since the last heartbeat, or since the registration.
    - `fresh`: the last heartbeat is within STALENESS_MULTIPLIER intervals.
    - `silent`: alive, but without a heartbeat for two intervals.
    - `own`: a process of the control plane itself.
    - `needs_attention`: silent, lost, or ending but not gracefully.
    """
    return build_servers_with_silence(conf().staleness_multiplier).all()


@cache
def build_servers_with_silence(staleness_multiplier: float) -> QuerySet[Server]:
    """Return the queryset of `servers_with_silence()`. It is cached, because building it costs more than running it."""
    last_seen = Coalesce("last_heartbeat_at", "created_at")
    return Server.objects.annotate(
        silence=Func(last_seen, template=SILENCE, output_field=FloatField()),
        fresh=sql.build_expression("is_fresh", BooleanField(), staleness_multiplier=staleness_multiplier),
        silent=sql.build_expression("is_silent", BooleanField()),
        own=sql.build_expression("is_own", BooleanField(), own_digest=OWN_DIGEST),
    ).annotate(needs_attention=sql.build_expression("needs_attention", BooleanField()))


def seconds_of(rule: str, since: str = "0", **params: Any) -> SqlExpression:
    """Return an SQL expression: the time of a rule minus `since`, in seconds. Infinity (never) becomes None."""
    return SqlExpression(f"(nullif({compose_statement(sql.app, rule)}, 'infinity') - {since})", FloatField(), **params)


def seconds_until(moment: str, **params: Any) -> SqlExpression:
    """Return an SQL expression: the seconds of observed time until the time of the rule `moment`. None means never."""
    return seconds_of(moment, "(select observed_now())", **params)


class TimedServer(Server):
    """Type of the servers of `servers_with_timing()` and `servers_with_attempts()`; it has no table."""

    silence: float
    fresh: bool
    silent: bool
    own: bool
    now: datetime
    age: float
    since: float
    lost_in: float
    moves_in: float | None
    disconnected_in: float
    braked: bool
    brake_lets_go_in: float | None
    check_age: float | None
    held: int
    live: list[Any]
    beats: list[float]
    needs_attention: bool
    grace: float | None

    class Meta:
        abstract = True


def servers_with_timing() -> QuerySet[TimedServer]:
    """Return the servers of `servers_with_silence()` with more values. Durations are in seconds.

    - `now`: the database's time.
    - `age` and `since`: since the registration, and since the last change of state.
    - `disconnected_in`: until the server is DISCONNECTED, if it sends no heartbeat.
    - `lost_in`: until it is lost. `moves_in`: until its running attempts are recovered; None means never.
    - `grace`: time that running attempts stay with a lost server; None means without limit.
    - `check_age`: since the last liveness check.
    - `braked`: a brake holds the server. `brake_lets_go_in`: until the brake begins to release servers.
    """
    settings = conf()
    return build_servers_with_timing(
        settings.staleness_multiplier, settings.initial_delay, settings.brake_max_hold
    ).all()


@cache
def build_servers_with_timing(
    staleness_multiplier: float, initial_delay: float, brake_max_hold: float
) -> QuerySet[TimedServer]:
    """Return the queryset of `servers_with_timing()`. It is cached, because building it costs more than running it."""
    servers: QuerySet[Any] = build_servers_with_silence(staleness_multiplier).annotate(
        now=ClockTimestamp(),
        age=Func("created_at", template=SILENCE, output_field=FloatField()),
        since=Func("state_changed_at", template=SILENCE, output_field=FloatField()),
        lost_in=seconds_until("lost_at"),
        moves_in=seconds_until("running_attempts_move_at"),
        grace=seconds_of("grace_of_attempts"),
        disconnected_in=seconds_until("disconnected_at", initial_delay=initial_delay),
        braked=sql.build_expression("is_held_by_brake", BooleanField()),
        brake_lets_go_in=seconds_until("brake_lets_go_at", brake_max_hold=brake_max_hold),
        check_age=sql.build_expression("check_age", FloatField()),
    )
    return servers


def servers_with_attempts() -> QuerySet[TimedServer]:
    """Return the servers of `servers_with_timing()` with the attempts that they hold (`live`), for the API."""
    attempts: Any = Server._meta.get_field("attempts").related_model
    held = attempts.objects.live().order_by("claimed_at")
    servers: QuerySet[TimedServer] = servers_with_timing().prefetch_related(Prefetch("attempts", held, to_attr="live"))
    return servers
