"""Probes for load balancers, Kubernetes and monitoring.

They show if this process is alive or ready, or the instance healthy.
"""

from collections.abc import Callable, Iterator

from django.db import Error
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from controlplane.core.database import ALIAS, MIGRATE, connection, count_missing_migrations
from controlplane.core.database.errors import describe
from controlplane.core.problems import retry_headers
from controlplane.core.program import program
from liveness.conf import conf
from liveness.selectors.clock import clock_ages, is_check_late


@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    """Return 200 while the process runs."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Return 200 if this process can work, otherwise 503 with the reasons.

    The state of other processes does not count. Otherwise a load balancer might remove all web processes at once, and
    so stop the heartbeats.
    """
    return build_probe_response(collect_problems(process_problems))


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Return 200 if the whole instance works, otherwise 503 with the problems."""
    return build_probe_response(collect_problems(process_problems, instance_problems))


def build_probe_response(wrong: list[str]) -> HttpResponse:
    status = 503 if wrong else 200
    body = {"status": "unready" if wrong else "ok", "problems": wrong}
    return JsonResponse(body, status=status, headers=retry_headers(status))


def collect_problems(*probes: Callable[[], Iterator[str]]) -> list[str]:
    try:
        return [wrong for probe in probes for wrong in probe()]
    except Error as error:
        return [f"Database {ALIAS!r}: {describe(error)}"]


def process_problems() -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute("show transaction_read_only")
        if cursor.fetchone()[0] == "on":
            yield "The database is read-only."
    if missing := count_missing_migrations():
        yield f"{missing} migrations are not applied: run `{program()} {MIGRATE}`."


def instance_problems() -> Iterator[str]:
    interval, beats = conf().interval, conf().heartbeat_interval
    check, standstill = clock_ages()
    if check is None:
        yield "No liveness check has run yet. Check that an executor with beat runs."
    elif is_check_late(check):
        yield f"The last liveness check was {check:.0f} s ago; one is due every {interval:g} s."
    if abs(standstill) > 3 * max(interval, 2 * beats):
        yield f"Observed time has not moved for {standstill:.0f} s: heartbeats do not arrive, or no check runs."
