"""The Django admin: tables to read, triggers to manage."""

from controlplane.console.admin import jobs, liveness  # noqa: F401
