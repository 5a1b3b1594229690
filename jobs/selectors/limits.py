"""Reads the rules of limits and the keys in use."""

from collections.abc import Collection

from jobs.errors import LimitUnknown
from jobs.models import LimitRule
from jobs.sql import sql
from jobs.sql.rows.limits import UsedLimitKey
from liveness.models import DEFAULT_NAMESPACE

KEYS_LIMIT = 500
COUNTED = 10_000
"""Parked jobs of a key are counted up to this number."""


def rule_with_keys(namespace: str, pattern: str) -> LimitRule:
    """Return the rule of a pattern in a namespace, with `keys` in use that it matches. Raises LimitUnknown."""
    rule = LimitRule.objects.filter(namespace=namespace, pattern=pattern).first()
    if rule is None:
        raise LimitUnknown
    vars(rule)["keys"] = list_used_keys(None if namespace == DEFAULT_NAMESPACE else [namespace], pattern)
    return rule


def list_used_keys(
    namespaces: Collection[str] | None, pattern: str | None = None, most: int = KEYS_LIMIT
) -> list[UsedLimitKey]:
    """Return the keys whose slots jobs of these namespaces (None: all) hold or wait for, with most parked jobs first.

    `pattern` restricts them to the keys that it matches.
    """
    among = None if namespaces is None else sorted(namespaces)
    return sql.list_limit_keys.fetch_rows(namespaces=among, pattern=pattern, counted=COUNTED, most=most)
