"""Quotas of namespaces: how many jobs wait in one, and how many its clients submit in a minute.

They are fields of the rules `namespace:NAME`. Submissions to a namespace with a quota are counted one by one, each at
the end of its transaction. So a submission that is refused, or that repeats an earlier one, is not counted.
"""

import math

from jobs.errors import QuotaExceeded
from jobs.sql import sql


def spend_quotas(namespace: str, jobs: int) -> None:
    """Count a submission of jobs that this transaction has stored. Raises QuotaExceeded, with the field of the rule."""
    for row in sql.spend_quotas.after(sql.lock_quotas).fetch_rows(namespace=namespace, jobs=jobs):
        most, rate, left = row.max_waiting, row.submissions_per_minute, row.left_over
        if most is not None and row.waiting > most:
            raise QuotaExceeded(
                f"At most {most} jobs may wait in the namespace {namespace} (max_waiting). This call has {jobs}. Submit"
                f" {'fewer at once' if jobs > most else 'again when some of the waiting jobs have started'}.",
                field="max_waiting",
                limit=most,
                jobs=jobs,
            )
        if rate is not None and left is not None and jobs > left:
            is_small = jobs <= rate
            raise QuotaExceeded(
                f"The namespace {namespace} takes {rate} jobs a minute (submissions_per_minute). This call has"
                f" {jobs}. Submit {'again later' if is_small else 'fewer at once'}.",
                field="submissions_per_minute",
                limit=rate,
                jobs=jobs,
                **({"retry_after": math.ceil((jobs - left) * 60 / rate)} if is_small else {}),
            )
