"""What an operator does to the whole control plane, or to a cluster: maintenance, and the release of the brake.

Each with a note, and with exactly one event. Each raises the 409 that says why it does not apply now.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from controlplane.core.model_fields import ClockTimestamp, ObservedNow
from controlplane.core.transactions import retried_atomic
from liveness import states
from liveness.errors import AlreadyInMaintenance, BrakeNotEngaged, NoSuchCluster, NotInMaintenance
from liveness.models import Brake, ClusterMaintenance, Instance
from liveness.selectors.clusters import is_known_cluster
from liveness.services.action_events import INSTANCE, Subject, record_action


@retried_atomic
def enter_maintenance(by: str, note: str, seconds: float | None = None, cluster: str = "") -> None:
    """Nobody gets new work, or nobody of a cluster; running work finishes, submissions queue. After so many seconds the
    next liveness check ends it; None: somebody does. Raises NoSuchCluster."""
    if cluster and not is_known_cluster(cluster):
        raise NoSuchCluster(f"No server of the cluster {cluster} has ever registered.")
    lock_maintenance(cluster)
    ensure_may_enter_maintenance(cluster)
    until = None if seconds is None else ClockTimestamp() + timedelta(seconds=seconds)
    if cluster:
        ClusterMaintenance.objects.create(cluster=cluster, until=until, by=by, note=note)
    else:
        Instance.objects.update(
            maintenance_since=ClockTimestamp(), maintenance_until=until, maintenance_by=by, maintenance_note=note
        )
    record_action("maintenance_enter", by, note, subject_of(cluster))


@retried_atomic
def exit_maintenance(by: str, note: str, cluster: str = "") -> None:
    """Work is given out again; to a cluster, unless the whole control plane is in maintenance too."""
    lock_maintenance(cluster)
    ensure_may_exit_maintenance(cluster)
    ended: dict[str, Any] = {"maintenance_ended_observed": ObservedNow()}
    if cluster:
        ClusterMaintenance.objects.filter(cluster=cluster).delete()
    else:
        ended |= {"maintenance_since": None, "maintenance_until": None, "maintenance_by": "", "maintenance_note": ""}
    Instance.objects.update(**ended)
    record_action("maintenance_exit", by, note, subject_of(cluster))


def lock_maintenance(cluster: str) -> None:
    """Who else begins or ends some, of whatever scope, waits for this transaction; and the check that ends this one, as
    its time is over."""
    Instance.objects.select_for_update().get()
    ClusterMaintenance.objects.select_for_update().filter(cluster=cluster).first()


def read_maintenance(cluster: str) -> datetime | None:
    """Since when a cluster, or (empty) the whole control plane, is in maintenance by itself."""
    if not cluster:
        return Instance.objects.get().maintenance_since
    return ClusterMaintenance.objects.filter(cluster=cluster).values_list("since", flat=True).first()


def subject_of(cluster: str) -> Subject:
    return Subject(states.Subject.INSTANCE, cluster, f"cluster {cluster}") if cluster else INSTANCE


@retried_atomic
def release_brake(by: str, note: str, type: str | None = None, cluster: str | None = None) -> list[str]:
    """Let the silent servers that the brake holds be disconnected, of one type or of all, of one cluster or of all; the
    types released. Each brake that is released has an event of its own."""
    released = list(engaged_brakes(type, cluster).select_for_update())
    ensure_may_release_brake(released)
    Brake.objects.filter(pk__in=[brake.pk for brake in released]).update(released_by=by, release_reason=note)
    for brake in released:
        record_action("brake_released", by, note, Subject(states.Subject.BRAKE, brake.key, brake.words))
    return sorted({brake.type for brake in released})


def engaged_brakes(type: str | None, cluster: str | None) -> QuerySet[Brake]:
    """Those that hold, of a type or of all, of a cluster or of all."""
    chosen = {name: value for name, value in (("type", type), ("cluster", cluster)) if value}
    return Brake.objects.filter(**chosen, released_by=None).order_by("type", "cluster")


def ensure_may_enter_maintenance(cluster: str = "") -> None:
    if (since := read_maintenance(cluster)) is not None:
        scope = f"The cluster {cluster}" if cluster else "The control plane"
        raise AlreadyInMaintenance(f"{scope} is in maintenance since {since:%F %T} UTC.")


def ensure_may_exit_maintenance(cluster: str = "") -> None:
    if read_maintenance(cluster) is None:
        raise NotInMaintenance(f"The cluster {cluster} is not in maintenance." if cluster else "")


def ensure_may_release_brake(engaged: Iterable[Brake]) -> None:
    if not list(engaged):
        raise BrakeNotEngaged
