"""Rules of limits: operators set and delete them, and each change acts at once."""

from collections.abc import Mapping
from typing import Any

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from jobs.errors import LimitUnknown
from jobs.models import LimitRule
from jobs.services import limits
from jobs.sql import sql
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType

FIELDS = ("running", "starts", "per_seconds")


@retried_atomic
def set_limit(namespace: str, pattern: str, fields: Mapping[str, Any], by: str) -> tuple[LimitRule, bool]:
    """Set the rule of a pattern in a namespace, and return it and whether it is new. Missing fields become null."""
    wanted = {name: fields.get(name) for name in FIELDS}
    rule, is_new = LimitRule.objects.select_for_update(no_key=True).get_or_create(
        namespace=namespace, pattern=pattern, defaults={**wanted, "note": fields["note"], "by": by}
    )
    old = {} if is_new else {name: getattr(rule, name) for name in FIELDS}
    if not is_new:
        LimitRule.objects.filter(pk=rule.pk).update(**wanted, note=fields["note"], by=by, changed_at=ClockTimestamp())
    changes = {name: {"old": old.get(name), "new": wanted[name]} for name in FIELDS if old.get(name) != wanted[name]}
    record_action("set_limit", by, fields["note"], describe_rule(namespace, pattern), changes=changes)
    apply_rule(pattern)
    return LimitRule.objects.get(pk=rule.pk), is_new


@retried_atomic
def delete_limit(namespace: str, pattern: str, by: str, note: str) -> None:
    """Delete the rule of a pattern in a namespace. Raises LimitUnknown."""
    count, _ = LimitRule.objects.filter(namespace=namespace, pattern=pattern).delete()
    if not count:
        raise LimitUnknown
    record_action("delete_limit", by, note, describe_rule(namespace, pattern))
    apply_rule(pattern)


def describe_rule(namespace: str, pattern: str) -> ActionSubject:
    return ActionSubject(SubjectType.LIMIT, pattern, f"limit {pattern} of {namespace}")


def apply_rule(pattern: str) -> None:
    """Park and unpark jobs of the keys of a pattern after the commit."""
    sql.pass_turns_of_pattern.fetch_rows(pattern=pattern)
    limits.settle_soon()
