"""Attempts that were taken from servers that may not know it yet."""

from django.db import models


class TakenAttempt(models.Model):
    """An attempt that ended without its server's word, until the server has confirmed that nothing of it runs there.

    Every heartbeat's answer names it. Where its code had begun, the next attempt of the job waits until this row is
    gone: the server says so, or has ended, or is past its fence, or goes on for CANCEL_TIMEOUT though it was told
    (`release_taken_attempts`). The table is nearly always empty, so that looking into it costs a claim and a
    heartbeat nothing. No foreign keys: whatever it refers to may go first.
    """

    attempt_id = models.UUIDField()
    job_id = models.UUIDField(db_index=True, help_text="That waits: its own, or one that repeats that.")
    server_id = models.UUIDField(db_index=True)
    had_begun = models.BooleanField(help_text="Its code may run: the next attempt waits.")
    told_observed = models.FloatField(null=True, help_text="When its server was first answered that it is lost.")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["attempt_id", "job_id"], name="takenattempt_of_job_once")]

    def __str__(self) -> str:
        return f"{self.attempt_id} taken from {self.server_id}"
