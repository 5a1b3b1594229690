"""Signing key of an installation without SECRET_KEY."""

import os
import secrets
from pathlib import Path

from controlplane.embedded import data_dir as data_dirs
from controlplane.embedded import private_files


def load_or_create_key(data_dir: Path) -> str:
    """Return the key in the data directory, created on first use, or an empty text without a directory.

    Only its owner can read it. Raise SystemExit with what to do if the directory is not writable.
    """
    path = data_dir / "secret_key"
    if not data_dir.exists():
        return ""  # Django then refuses to sign
    try:
        private_files.prepare(data_dir)
        if path.exists():
            return path.read_text().strip()
        draft = path.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48))
        try:
            os.link(draft, path)  # if several processes do this, the first wins, and all read the same key
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return path.read_text().strip()
    except OSError as error:
        raise SystemExit(data_dirs.refusal(data_dir, error)) from None
