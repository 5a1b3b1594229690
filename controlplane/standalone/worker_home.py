"""User account and environment of the workers. Jobs run in them, and anyone with a client token may submit jobs."""

import hashlib
import os
import pwd
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from controlplane.agent.secrets.sources import PREFIX
from controlplane.embedded import system_user
from controlplane.embedded.postgres_server import SYSTEM_HOME

USER = "controlplane-worker"
ALLOWED = (
    *(
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TERM",
        "TMPDIR",
        "TZ",
        "LANG",
        "LANGUAGE",
        "LC_*",
        "LD_LIBRARY_PATH",
    ),
    *("PYTHON*", "VIRTUAL_ENV", "XDG_*", "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "*_proxy", "*_PROXY"),
    *("CONTROLPLANE_STATE_DIR", "CONTROLPLANE_RUNTIME_DIR", f"{PREFIX}*"),
)
OF_ANOTHER = ("TMPDIR", "SHELL", "XDG_*", "CONTROLPLANE_RUNTIME_DIR")  # values of root, which another user cannot use
MORE = "CONTROLPLANE_WORKER_ENV"


@dataclass(frozen=True)
class Home:
    """Environment, umask and user of the workers.

    `options` are more options of the agent. `warning` explains why the workers run as root.
    """

    environment: dict[str, str]
    umask: int
    options: list[str]
    user: str | None = None
    warning: str | None = None


def make(data_dir: Path, inherited: Mapping[str, str], umask: int, options: Sequence[str] = ()) -> Home:
    """Return the workers' home. If this process runs as root, use a separate account for workers if possible.

    `options` are more options of the agent.
    """
    handed_on = [name.strip() for name in inherited.get(MORE, "").split(",") if name.strip()]
    environment = only(inherited, (*ALLOWED, *handed_on))
    of_agent = [*options, *(["--pass-env", ",".join(handed_on)] if handed_on else [])]
    ours = Home({"CONTROLPLANE_STATE_DIR": str(data_dir / "agents"), **environment}, umask, of_agent)
    if os.geteuid() != 0:
        return ours
    try:
        account = system_user.find_or_make(USER)
        environment = {name: value for name, value in environment.items() if not matches(name, OF_ANOTHER)}
        environment |= {"HOME": account.pw_dir, "USER": USER, "LOGNAME": USER}
        refuse_what_cannot_run(account, environment)
    except LookupError as error:
        warning = f"Workers run as root, so anyone who can submit jobs has all rights of root: {error}."
        return replace(ours, warning=warning)
    if "CONTROLPLANE_STATE_DIR" not in environment:
        environment["CONTROLPLANE_STATE_DIR"] = str(make_state(data_dir, account))
    return Home(environment, umask, of_agent, USER)


def only(environment: Mapping[str, str], allowed: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if matches(name, allowed)}


def matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def refuse_what_cannot_run(account: pwd.struct_passwd, environment: dict[str, str]) -> None:
    """Raise LookupError if the user cannot start an agent, for example if our Python is in root's home directory."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "controlplane.agent", "--help"],
            env=environment,
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            capture_output=True,
            text=True,
            errors="replace",
        )
        why = done.stderr.strip().rpartition("\n")[2] if done.returncode else None
    except OSError as error:
        why = str(error)
    if why is not None:
        raise LookupError(f"the user {account.pw_name} cannot run the agent with {sys.executable} ({why})")


def make_state(data_dir: Path, account: pwd.struct_passwd) -> Path:
    """Create a folder that the user owns, for the state of workers. The data directory is closed to that user."""
    SYSTEM_HOME.mkdir(mode=0o755, exist_ok=True)
    folder = state_of(data_dir)
    folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(folder, account.pw_uid, account.pw_gid, follow_symlinks=False)
    return folder


def state_of(data_dir: Path) -> Path:
    return SYSTEM_HOME / f"{data_dir.name}-agents-{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:8]}"
