from typing import Any

from controlplane.core.own_command import OwnCommand
from liveness.services import signing_key


class Command(OwnCommand):
    help = (
        "Allow the present signing key to use this database, after the former key was lost. "
        "Stop all processes with the former key first. Workers register again and continue."
    )

    def handle(self, **options: Any) -> None:
        signing_key.replace_key()
        self.stdout.write(f"The database now belongs to the key {signing_key.fingerprints()[0][: signing_key.SHOWN]}.")
