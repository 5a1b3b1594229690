"""Model of attempts that were taken from living servers. The servers may not know that yet."""

from django.db import models


class TakenAttempt(models.Model):
    """Attempt that ended without a report of its server, until the server has confirmed that its code has stopped.

    The response to every heartbeat of the server names the attempt as lost. If its code had started, the next attempt
    of the job waits until this row is deleted (`release_taken_attempts`). The row is deleted when the server confirms
    the stop, has ended, is past its fence, or has ignored the responses for CANCEL_TIMEOUT. The table is nearly always
    empty, so claims and heartbeats can read it at almost no cost. It has no foreign keys, because the other rows may be
    deleted first.
    """

    attempt_id = models.UUIDField()
    job_id = models.UUIDField(db_index=True, help_text="Waiting job: its own, or one that repeats it.")
    server_id = models.UUIDField(db_index=True)
    had_begun = models.BooleanField(help_text="True: its code may still run, so the next attempt waits.")
    told_observed = models.FloatField(
        null=True, help_text="Observed time of the first response to its server that named it as lost."
    )

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["attempt_id", "job_id"], name="takenattempt_of_job_once")]

    def __str__(self) -> str:
        return f"{self.attempt_id} taken from {self.server_id}"
