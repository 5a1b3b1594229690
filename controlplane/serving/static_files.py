"""Static files, served from the packages that they lie in: nothing has to be collected before a page can be shown."""

import hashlib
from functools import cache
from pathlib import Path

from django.contrib.staticfiles.finders import find
from django.contrib.staticfiles.storage import StaticFilesStorage


class PackageFiles(StaticFilesStorage):
    """A file's address changes with its content, so that browsers may keep it."""

    def url(self, name: str | None) -> str:
        address = super().url(name)
        return f"{address}?v={version}" if (version := content_version(name or "")) else address


@cache
def content_version(name: str) -> str | None:
    path = find(name)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12] if isinstance(path, str) else None
