"""Steps that run before the parts start. A step that was done earlier does nothing."""

import errno
import fcntl
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connections

from controlplane.core.database.silence import watch
from controlplane.embedded import private_files
from controlplane.startup import refuse_another_key, refuse_wrong_settings
from liveness.errors import TokenRefused
from liveness.services import tokens

ADMIN = "admin"


@contextmanager
def hold_data_dir(data_dir: Path) -> Iterator[None]:
    """Lock the data directory. Raise CommandError if another control plane has locked it."""
    with os.fdopen(private_files.open_lock(data_dir / "standalone.lock")) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"A control plane is already running on {data_dir}. Stop it, or choose another with --data-dir."
            ) from None
        yield


def check_settings() -> None:
    """Raise CommandError with all errors in the settings. Otherwise each part would report them again."""
    try:
        refuse_wrong_settings()
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from None


def check_key() -> None:
    """Raise CommandError if the database belongs to a control plane with another key."""
    try:
        refuse_another_key()
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from None


def check_address(host: str, port: int) -> None:
    """Raise CommandError if a server cannot listen on this address."""
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with socket.socket(family, kind, protocol) as listener:
            # Ignore connections that ended a moment ago, as the web server does.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CommandError(f"Port {port} is in use; choose another with --port.") from None
        raise CommandError(f"Nothing can listen on {host}, port {port}: {error.strerror}.") from None


def migrate_database() -> None:
    call_command("migrate", interactive=False, verbosity=0)


def create_administrator() -> str | None:
    """Create the administrator and return the password. Return None if one exists."""
    users = get_user_model().objects
    if users.filter(is_superuser=True).exists() or users.filter(username=ADMIN).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_superuser(ADMIN, password=password)
    return password


def kept_password(data_dir: Path, password: str) -> Path:
    """Store the first password in a file that only its owner can read, and return its path."""
    path = data_dir / "admin_password"
    write_secret(path, f"{password}\n")
    return path


def load_or_create_token(data_dir: Path, role: str) -> str:
    """Return the API token in the data directory if it is valid, otherwise create one."""
    path = data_dir / "tokens" / role
    try:
        text = path.read_text()
        tokens.find_token(text)
        return text
    except (FileNotFoundError, TokenRefused):
        text = tokens.create_token(f"standalone {role}", role)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_secret(path, text)
    return text


def write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def close_connections() -> None:
    """Close the connections to the database, because their threads must have ended before processes are forked."""
    for connection in connections.all():
        connection.close()
        if close_pool := getattr(connection, "close_pool", None):
            close_pool()
    watch.stop()
