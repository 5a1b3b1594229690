"""The environment of a container, kept out of the environment of docker or podman.

A job chooses the names of its variables. In the environment of docker or podman they could change what it does:
BASH_ENV runs a file, and REGISTRY_AUTH_FILE and HTTPS_PROXY send a registry's password elsewhere. So the program reads
the variables from a file (`--env-file`) that only this user can read.

A line of such a file cannot contain a line break, and docker refuses long lines. Such values are in the environment of
the program under other names, and a shell in the container restores their names.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

LINE_LIMIT = 60_000
"""Bytes of a line in an env file. Docker and podman fail at 65,536."""
PAYLOAD = "JOB_PAYLOAD"
"""The agent's variable that may be long. Its name has no meaning for docker and podman."""
ALIAS = "CONTROLPLANE_VALUE_"
NEEDS_SHELL = (
    "The value of {name} has a line break or more than 60,000 bytes. A container of docker or podman gets such a value "
    "from a shell: submit a script, or write the command as a text."
)


def fits_line(name: str, value: str) -> bool:
    """Return True if an env file can hold the variable."""
    return not ("\n" in value or "\r" in value) and len(f"{name}={value}".encode()) <= LINE_LIMIT


class ContainerEnvironment:
    """The variables of one container.

    `lines` are the lines of its env file. `carried` are the values in the environment of the program, by their names
    there. `renamed` maps those names to the real names, which a shell in the container restores.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.lines = [f"{name}={value}" for name, value in variables.items() if fits_line(name, value)]
        others = [name for name, value in variables.items() if not fits_line(name, value)]
        carriers = {PAYLOAD if name == PAYLOAD else f"{ALIAS}{number}": name for number, name in enumerate(others, 1)}
        self.carried = {carrier: variables[name] for carrier, name in carriers.items()}
        self.renamed = {carrier: name for carrier, name in carriers.items() if carrier != name}

    def options(self, folder: Path) -> list[str]:
        """Write the env file into `folder` and return the options for `run`. Raise OSError."""
        file = folder / "environment"
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", newline="") as written:
            written.writelines(f"{line}\n" for line in self.lines)
        return [f"--env-file={file}", *(part for name in self.carried for part in ("--env", name))]

    def rename_in(self, command: Sequence[str]) -> list[str]:
        """Return a command line that restores the names of carried values and then runs `command`."""
        if not self.renamed:
            return list(command)
        names = " ".join(f'export {name}="${alias}"; unset {alias};' for alias, name in self.renamed.items())
        return ["/bin/sh", "-c", f'{names} exec "$@"', "sh", *command]


def make_private_folder(shared: Path | None) -> Path:
    """Return a new folder that only this user can enter, beside the attempt's folder if it has one. Raise OSError."""
    if shared is None:
        return Path(tempfile.mkdtemp(prefix="controlplane-environment-"))
    folder = private_folder(shared)
    folder.mkdir(mode=0o700)
    return folder


def remove_private_folder(shared: Path) -> None:
    """Remove the private folder if it exists."""
    shutil.rmtree(private_folder(shared), ignore_errors=True)


def private_folder(shared: Path) -> Path:
    """Return the path of the private folder of an attempt.

    It is not inside the folder of the attempt, because the container sees that.
    """
    return shared.with_name(f"{shared.name}.private")
