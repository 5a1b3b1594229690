"""Selector of the bytes that the jobs of each token store."""

from jobs.conf import conf
from jobs.sql import sql
from jobs.sql.rows.stored_bytes import StoredOfOwner

OWNERS_SHOWN = 100


def owners_by_stored_bytes() -> list[StoredOfOwner]:
    """Return the tokens that store most bytes, largest first. The list is empty if bytes are not counted."""
    if conf().stored_bytes_limit is None:
        return []
    return sql.read_stored_bytes.fetch_rows(limit=OWNERS_SHOWN)
