"""Page of limits: the keys in use, with their slots and parked jobs, and the rules."""

from typing import Any

from django.http import HttpRequest, HttpResponse

from controlplane.console.formatting import time_since
from controlplane.console.page import HOME, reached_namespaces, render_page, require_reader, within_reach
from jobs.models import LimitRule
from jobs.selectors.limits import COUNTED, list_used_keys
from jobs.sql.rows.limits import UsedLimitKey
from liveness.selectors.clock import database_time

KEYS_SHOWN, RULES_SHOWN = 200, 200


@require_reader("job")
def show_limits(request: HttpRequest) -> HttpResponse:
    """Show the keys in use, those with most parked jobs first, and the rules."""
    now = database_time()
    rows = list_used_keys(reached_namespaces(request), most=KEYS_SHOWN + 1)
    rules = list(within_reach(request, LimitRule.objects.order_by("pattern", "namespace"))[: RULES_SHOWN + 1])
    shown: dict[str, Any] = {
        "title": "Limits",
        "trail": [HOME],
        "used_keys": [present_key(row, now) for row in rows[:KEYS_SHOWN]],
        "more": len(rows) > KEYS_SHOWN and KEYS_SHOWN,
        "rules": [present_rule(rule, now) for rule in rules[:RULES_SHOWN]],
        "more_rules": len(rules) > RULES_SHOWN and RULES_SHOWN,
    }
    return render_page(request, "limits", shown)


def present_key(row: UsedLimitKey, now: Any) -> dict[str, Any]:
    return {
        "it": row,
        "is_full": row.allowed is not None and row.used >= row.allowed,
        "is_counted": row.parked < COUNTED,
        "waits": row.oldest_at and time_since(row.oldest_at, now),
    }


def present_rule(rule: LimitRule, now: Any) -> dict[str, Any]:
    starts = f"{rule.starts:,} in {rule.per_seconds:g} s" if rule.starts is not None else ""
    return {"it": rule, "starts": starts, "changed": time_since(rule.changed_at, now)}
