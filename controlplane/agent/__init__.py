"""The worker: claims jobs, runs each in a child process, reports. Imports no Django."""

from controlplane.agent.job_context import checkpoint, context, progress

__all__ = ["checkpoint", "context", "progress"]
