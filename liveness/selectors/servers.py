"""Servers, with how long each is silent, and when it is lost and its attempts move."""

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
    """Servers with `silence` in seconds; whether they are `fresh`: their heartbeats come in time for them to get work;
    whether `silent`: alive, and without a heartbeat for two intervals, at this read; whether they are the control
    plane's `own` processes, and whether something is wrong with them, `needs_attention`."""
    return build_servers_with_silence(conf().staleness_multiplier).all()


@cache
def build_servers_with_silence(staleness_multiplier: float) -> QuerySet[Server]:
    """Once: to put a query together costs more than to ask it."""
    last_seen = Coalesce("last_heartbeat_at", "created_at")
    return Server.objects.annotate(
        silence=Func(last_seen, template=SILENCE, output_field=FloatField()),
        fresh=sql.build_expression("is_fresh", BooleanField(), staleness_multiplier=staleness_multiplier),
        silent=sql.build_expression("is_silent", BooleanField()),
        own=sql.build_expression("is_own", BooleanField(), own_digest=OWN_DIGEST),
    ).annotate(needs_attention=sql.build_expression("needs_attention", BooleanField()))


def seconds_of(rule: str, since: str = "0", **params: Any) -> SqlExpression:
    """What a rule says, in seconds; None where it says infinity, which is never."""
    return SqlExpression(f"(nullif({compose_statement(sql.app, rule)}, 'infinity') - {since})", FloatField(), **params)


def seconds_until(moment: str, **params: Any) -> SqlExpression:
    """Seconds of observed time until a moment that the sweeps act on, the rule `moment`; None: never."""
    return seconds_of(moment, "(select observed_now())", **params)


class TimedServer(Server):
    """What `servers_with_timing()` knows of a server, for whoever reads it; never stored."""

    silence: float
    fresh: bool
    silent: bool
    own: bool
    now: datetime
    age: float
    since: float
    lost_in: float
    moves_in: float | None
    overdue_in: float
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
    """Servers as `servers_with_silence()` has them, with what a reader asks next, in seconds by the database's clock:
    `age`, `since` its last change of state, `overdue_in` (to DISCONNECTED, without a heartbeat), `lost_in` and
    `moves_in` (its running attempts; None: never), for how long these stay with it once it is lost, `grace` (None: for
    good), and `check_age`; whether it is `braked`, and in how many seconds the brake begins to let go,
    `brake_lets_go_in`; `now`."""
    settings = conf()
    return build_servers_with_timing(
        settings.staleness_multiplier, settings.initial_delay, settings.brake_max_hold
    ).all()


@cache
def build_servers_with_timing(
    staleness_multiplier: float, initial_delay: float, brake_max_hold: float
) -> QuerySet[TimedServer]:
    """Once; see `build_servers_with_silence`."""
    servers: Any = build_servers_with_silence(staleness_multiplier).annotate(
        now=ClockTimestamp(),
        age=Func("created_at", template=SILENCE, output_field=FloatField()),
        since=Func("state_changed_at", template=SILENCE, output_field=FloatField()),
        lost_in=seconds_until("lost_at"),
        moves_in=seconds_until("running_attempts_move_at"),
        grace=seconds_of("grace_of_attempts"),
        overdue_in=seconds_until("disconnected_at", initial_delay=initial_delay),
        braked=sql.build_expression("is_held_by_brake", BooleanField()),
        brake_lets_go_in=seconds_until("brake_lets_go_at", brake_max_hold=brake_max_hold),
        check_age=sql.build_expression("check_age", FloatField()),
    )
    return servers


def servers_with_attempts() -> QuerySet[TimedServer]:
    """Servers as the API answers them: as `servers_with_timing()` has them, with the attempts they hold, `live`."""
    attempts: Any = Server._meta.get_field("attempts").related_model
    held = attempts.objects.live().order_by("claimed_at")
    return servers_with_timing().prefetch_related(Prefetch("attempts", held, to_attr="live"))
