"""The settings of a project that has the control plane among its apps, and tasks of its own."""

from controlplane.settings import *  # noqa: F403

TASKS = {"default": {"BACKEND": "jobs.django_tasks.WorkerJobBackend", "QUEUES": ["default", "mail"]}}
