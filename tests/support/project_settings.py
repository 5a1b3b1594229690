"""Settings of a project that includes the control plane and has tasks of its own."""

from controlplane.settings import *  # noqa: F403

TASKS = {"default": {"BACKEND": "jobs.django_tasks.WorkerJobBackend", "QUEUES": ["default", "mail"]}}
