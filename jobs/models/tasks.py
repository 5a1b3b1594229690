"""What is counted of Celery tasks."""

from django.db import models


class TaskTally(models.Model):
    """How the tasks of one name ended on one worker, as it says itself: sums since it began to count.

    Those worth a record by themselves are jobs as well. No foreign key: it goes with its server (`delete_servers`).
    """

    server_id = models.UUIDField()
    counter = models.UUIDField(help_text="Id of the process that counts: another process begins at 0.")
    name = models.TextField()
    completed = models.BigIntegerField(db_default=0)
    failed = models.BigIntegerField(db_default=0)
    retried = models.BigIntegerField(db_default=0)
    lost = models.BigIntegerField(db_default=0)
    seconds = models.FloatField(db_default=0, help_text="That the code of all of them ran.")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["server_id", "counter", "name"], name="tasktally_once")]

    def __str__(self) -> str:
        return f"{self.name} on {self.server_id}"
