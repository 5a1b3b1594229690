"""System users as which root starts processes."""

import os
import pwd
import shutil
import subprocess


def find_or_make(name: str) -> pwd.struct_passwd:
    """Return a user without a home and a shell, created if needed. Raise LookupError with the reason for a failure."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        pass
    # Directories of an administrator's programs, which the PATH of an ordinary shell or of cron may lack.
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
        return pwd.getpwnam(name)  # we created it, or another process did at the same time
    except KeyError:
        raise LookupError(f"the system user {name} could not be created ({why})") from None
