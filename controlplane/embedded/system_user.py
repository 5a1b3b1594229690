"""Users of the system that root runs things as."""

import pwd
import subprocess


def find_or_make(name: str) -> pwd.struct_passwd:
    """A user without a home and without a shell. Raises LookupError with the reason when there is none."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        pass
    command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
    try:
        why = subprocess.run(command, capture_output=True, text=True).stderr.strip()
    except OSError as error:
        why = str(error)
    try:
        return pwd.getpwnam(name)  # made by us, or by somebody at the same time
    except KeyError:
        raise LookupError(f"the system user {name} could not be made ({why})") from None
