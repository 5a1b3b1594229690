"""The signing key of an installation that was not given one by SECRET_KEY."""

import os
import secrets
from pathlib import Path

from controlplane.embedded import private_files


def load_or_create_key(data_dir: Path) -> str:
    """The key in the data directory, made on first use and readable by its owner only.

    Raises SystemExit with what to do when the directory cannot be written.
    """
    path = data_dir / "secret_key"
    try:
        private_files.prepare(data_dir)
        if path.exists():
            return path.read_text()
        draft = path.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48))
        try:
            os.link(draft, path)  # the first of several processes wins, and all read the same key
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return path.read_text()
    except OSError as error:
        raise SystemExit(
            f"The data directory {data_dir} cannot be used: {error.strerror}. "
            "Set CONTROLPLANE_DATA_DIR to a directory that can be written, or set SECRET_KEY."
        ) from None
