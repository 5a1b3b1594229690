"""Typed client of the control plane, without Django.

from controlplane.client import Client

with Client("https://control.example", token_file="client.token") as client:
    job = client.wait(client.submit({"type": "script", "command": "date"}))
"""

from controlplane.agent.api.client import ControlPlaneError, Refused, Unreachable
from controlplane.client.answers import (
    Attempt,
    Execution,
    ExecutionEvent,
    ExecutionSummary,
    Job,
    LogLine,
    Server,
    Step,
    Trigger,
)
from controlplane.client.asynchronous import AsyncClient, Client
from controlplane.client.batch_answers import Batch, BatchDetails, BatchItem
from controlplane.client.requests import Action, BatchOptions, ExecutionOptions, JobOptions
from controlplane.client.session import StillRunning

__all__ = [
    "Action",
    "AsyncClient",
    "Attempt",
    "Batch",
    "BatchDetails",
    "BatchItem",
    "BatchOptions",
    "Client",
    "ControlPlaneError",
    "Execution",
    "ExecutionEvent",
    "ExecutionOptions",
    "ExecutionSummary",
    "Job",
    "JobOptions",
    "LogLine",
    "Refused",
    "Server",
    "Step",
    "StillRunning",
    "Trigger",
    "Unreachable",
]
