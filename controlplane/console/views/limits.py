"""Page of limits: the keys in use, with their slots and parked jobs, and the rules."""

from typing import Any

from django.http import HttpRequest, HttpResponse

from controlplane.console.actions.holds import PERMISSION
from controlplane.console.formatting import link_to_page, time_since
from controlplane.console.page import HOME, reached_namespaces, render_page, require_reader, within_reach
from controlplane.console.presenters.holds import present_hold
from controlplane.console.views.holds import holding_namespaces
from jobs.choices import HoldOf
from jobs.models import LimitRule
from jobs.selectors.holds import holds_in_force, holds_with_parked
from jobs.selectors.limits import COUNTED, list_used_keys
from jobs.sql.rows.limits import UsedLimitKey
from liveness.selectors.clock import database_time

KEYS_SHOWN, RULES_SHOWN = 200, 200


@require_reader("job")
def show_limits(request: HttpRequest) -> HttpResponse:
    """Show the keys in use, those with most parked jobs first, and the rules."""
    now = database_time()
    rows = list_used_keys(reached_namespaces(request), most=KEYS_SHOWN + 1)
    held = {hold.value: hold for hold in reversed(list_held_keys(request))}
    known = {row.key for row in rows}
    rows = [*(unused_key(hold) for key, hold in held.items() if key not in known), *rows]
    rules = list(within_reach(request, LimitRule.objects.order_by("pattern", "namespace"))[: RULES_SHOWN + 1])
    shown: dict[str, Any] = {
        "title": "Limits",
        "trail": [HOME],
        "used_keys": [present_key(row, held.get(row.key), now) for row in rows[:KEYS_SHOWN]],
        "more": len(rows) > KEYS_SHOWN and KEYS_SHOWN,
        "rules": [present_rule(rule, now) for rule in rules[:RULES_SHOWN]],
        "more_rules": len(rules) > RULES_SHOWN and RULES_SHOWN,
        "may": request.user.has_perm(PERMISSION),
    }
    return render_page(request, "limits", shown)


def list_held_keys(request: HttpRequest) -> list[Any]:
    """Return the holds of limit keys, with the jobs that wait for each."""
    reached = holding_namespaces(request)
    return holds_with_parked(holds_in_force(reached).filter(kind=HoldOf.LIMIT).order_by("-pk")[:KEYS_SHOWN])


def unused_key(hold: Any) -> UsedLimitKey:
    """Return a key on hold that has no slots in use and parks no jobs itself."""
    return UsedLimitKey(hold.value, 0, None, 0, None)


def present_key(row: UsedLimitKey, hold: Any, now: Any) -> dict[str, Any]:
    return {
        "it": row,
        "hold": hold and present_hold(hold, now),
        "parked": row.parked + (hold.parked if hold else 0),
        "share": row.allowed and min(100, round(100 * row.used / row.allowed)),
        "pause": link_to_page("hold_add", kind=HoldOf.LIMIT.value, value=row.key),
        "limit": link_to_page("limit_set", pattern=row.key),
        "is_full": row.allowed is not None and row.used >= row.allowed,
        "is_counted": row.parked < COUNTED,
        "waits": row.oldest_at and time_since(row.oldest_at, now),
    }


def present_rule(rule: LimitRule, now: Any) -> dict[str, Any]:
    starts = f"{rule.starts:,} in {rule.per_seconds:g} s" if rule.starts is not None else ""
    quotas = [
        *([f"{rule.max_waiting:,} waiting"] if rule.max_waiting is not None else []),
        *([f"{rule.submissions_per_minute:,} submissions a minute"] if rule.submissions_per_minute is not None else []),
    ]
    fair = "" if rule.fair is None else "Yes" if rule.fair else "No"
    weight = "" if rule.weight is None else f"weight {rule.weight}"
    shares = ", ".join(filter(None, (fair, weight)))
    named = {"pattern": rule.pattern, "namespace": rule.namespace}
    return {
        "it": rule,
        "starts": starts,
        "quotas": ", ".join(quotas),
        "fair": shares,
        "changed": time_since(rule.changed_at, now),
        "change": link_to_page("limit_set", **named),
        "delete": link_to_page("limit_delete", **named),
    }
