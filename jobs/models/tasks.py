"""Model of counts of Celery tasks."""

from django.db import models


class TaskTally(models.Model):
    """Counts of the ended tasks of one name on one worker, since the worker's process started to count.

    Some of these tasks also have jobs. There is no foreign key; `delete_servers` deletes the row with its server.
    """

    server_id = models.UUIDField()
    counter = models.UUIDField(help_text="Id of the counting process. Each process starts at 0.")
    name = models.TextField()
    completed = models.BigIntegerField(db_default=0)
    failed = models.BigIntegerField(db_default=0)
    retried = models.BigIntegerField(db_default=0)
    lost = models.BigIntegerField(db_default=0)
    seconds = models.FloatField(db_default=0, help_text="Seconds that their code ran in all.")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["server_id", "counter", "name"], name="tasktally_once")]

    def __str__(self) -> str:
        return f"{self.name} on {self.server_id}"
