"""Stored bytes of the jobs of each token."""

from django.db import models

from liveness.models import ApiToken


class StoredBytes(models.Model):
    """Change of the bytes that the jobs of an API token occupy, positive or negative.

    The sum of all rows is the size now. Rows are only added, so submissions of one token never wait for each other. A
    periodic task merges the rows of each token. The table is empty without a STORED_BYTES_LIMIT.
    """

    owner = models.ForeignKey(ApiToken, models.DO_NOTHING, db_constraint=False, db_index=False)
    bytes = models.BigIntegerField(help_text="Negative: bytes were deleted.")

    class Meta:
        default_permissions = ()
        indexes = [models.Index(fields=["owner"], include=["bytes"], name="storedbytes_of_owner")]

    def __str__(self) -> str:
        return f"{self.bytes} bytes of {self.owner_id}"
