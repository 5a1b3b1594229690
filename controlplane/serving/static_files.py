"""Static files that are served from the packages that contain them, without `collectstatic`."""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import AppDirectoriesFinder, find
from django.contrib.staticfiles.storage import StaticFilesStorage


class WithoutSourceMaps(AppDirectoriesFinder):
    """Finder of the apps' static files without source maps. These are the largest files, and pages do not need them."""

    def find(self, path: str, *args: Any, **options: Any) -> Any:
        return [] if path.endswith(".map") else super().find(path, *args, **options)

    def list(self, ignore_patterns: Iterable[str] | None) -> Any:
        return super().list([*(ignore_patterns or ()), "*.map"])


class PackageFiles(StaticFilesStorage):
    """Storage in which the URL of a file changes with its content, so that browsers can cache the file."""

    def url(self, name: str | None) -> str:
        address = super().url(name)
        return f"{address}?v={version}" if (version := content_version(name or "")) else address


@cache
def content_version(name: str) -> str | None:
    path = find(name)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12] if isinstance(path, str) else None
