"""Actions of operators on the whole control plane or on a cluster: maintenance, and the release of the brake.

Each action has a note and writes exactly one event. An action that does not apply raises a Problem with status 409.
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
from liveness.services.action_events import INSTANCE, ActionSubject, record_action


@retried_atomic
def enter_maintenance(by: str, note: str, seconds: float | None = None, cluster: str = "") -> None:
    """Enter maintenance: no server (of the cluster) gets new work; running work finishes and submissions wait.

    The first liveness check after `seconds` ends it; None means that an operator ends it. An empty `cluster` means the
    whole control plane. Raise NoSuchCluster or AlreadyInMaintenance.
    """
    if cluster and not is_known_cluster(cluster):
        raise NoSuchCluster(f"No server of the cluster {cluster} is known. Check the name.")
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
    """Exit maintenance of a cluster or (empty) of the whole control plane. Raise NotInMaintenance.

    A cluster still gets no work if the whole control plane is in maintenance.
    """
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
    """Lock the maintenance of a scope until the end of the transaction.

    Other operators who enter or exit any maintenance wait. So does the liveness check that ends this maintenance.
    """
    Instance.objects.select_for_update().get()
    ClusterMaintenance.objects.select_for_update().filter(cluster=cluster).first()


def read_maintenance(cluster: str) -> datetime | None:
    """Return when maintenance of a cluster or (empty) of the control plane began. None: there is no maintenance."""
    if not cluster:
        return Instance.objects.get().maintenance_since
    return ClusterMaintenance.objects.filter(cluster=cluster).values_list("since", flat=True).first()


def subject_of(cluster: str) -> ActionSubject:
    return ActionSubject(states.Subject.INSTANCE, cluster, f"cluster {cluster}") if cluster else INSTANCE


@retried_atomic
def release_brake(
    by: str, note: str, type: str | None = None, cluster: str | None = None, namespace: str | None = None
) -> list[str]:
    """Release brakes, so that the silent servers they hold are disconnected. Return the types of these servers.

    `type`, `cluster` and `namespace` limit the brakes; None means all. Each released brake has its own event. Raise
    BrakeNotEngaged if no brake is engaged.
    """
    released = list(engaged_brakes(type, cluster, namespace).select_for_update())
    ensure_may_release_brake(released)
    Brake.objects.filter(pk__in=[brake.pk for brake in released]).update(released_by=by, release_reason=note)
    for brake in released:
        record_action("brake_released", by, note, ActionSubject(states.Subject.BRAKE, brake.key, brake.words))
    return sorted({brake.type for brake in released})


def engaged_brakes(type: str | None, cluster: str | None, namespace: str | None = None) -> QuerySet[Brake]:
    """Return the engaged brakes of a type, cluster and namespace; an empty value means all."""
    scope = {"type": type, "cluster": cluster, "namespace": namespace}
    chosen = {name: value for name, value in scope.items() if value}
    return Brake.objects.filter(**chosen, released_by=None).order_by("type", "namespace", "cluster")


def ensure_may_enter_maintenance(cluster: str = "") -> None:
    if (since := read_maintenance(cluster)) is not None:
        scope = f"The cluster {cluster}" if cluster else "The control plane"
        raise AlreadyInMaintenance(f"{scope} has been in maintenance since {since:%F %T} UTC.")


def ensure_may_exit_maintenance(cluster: str = "") -> None:
    if read_maintenance(cluster) is None:
        raise NotInMaintenance(f"The cluster {cluster} is not in maintenance." if cluster else "")


def ensure_may_release_brake(engaged: Iterable[Brake]) -> None:
    if not list(engaged):
        raise BrakeNotEngaged
