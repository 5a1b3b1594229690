"""Users of the system that root runs things as."""

import os
import pwd
import shutil
import subprocess


def find_or_make(name: str) -> pwd.struct_passwd:
    """A user without a home and without a shell. Raises LookupError with the reason when there is none."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        pass
    # Where an administrator's programs are: the path of an ordinary shell, or of cron, may lack it.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    command = [
        shutil.which("useradd", path=path) or "useradd",
        "--system",
        "--no-create-home",
        "--shell",
        "/usr/sbin/nologin",
        name,
    ]
    try:
        why = subprocess.run(command, capture_output=True, text=True).stderr.strip()
    except FileNotFoundError:
        why = "the program useradd is not installed"
    try:
        return pwd.getpwnam(name)  # made by us, or by somebody at the same time
    except KeyError:
        raise LookupError(f"the system user {name} could not be made ({why})") from None
