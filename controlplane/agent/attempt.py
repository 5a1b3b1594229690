"""An attempt on this machine, and the report of its end."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.fitness import memory
from controlplane.agent.from_code.checkpoint_file import CheckpointFile
from controlplane.agent.from_code.logs import AttemptLog
from controlplane.agent.from_code.outcomes import failure_report
from controlplane.agent.from_code.progress_file import ProgressFile
from controlplane.agent.from_code.reported_file import ReportedFile
from controlplane.agent.limits import MESSAGE_LIMIT
from controlplane.agent.processes.child_process import ChildExit
from controlplane.agent.processes.folder import Folder, remove_tree
from controlplane.agent.runners.container_environment import remove_private_folder
from controlplane.agent.runners.policy import takes_references
from controlplane.agent.runners.runner import Runner
from controlplane.agent.secrets.mask import READ_BY_PEOPLE, SecretMask, mask_passwords
from controlplane.agent.secrets.step_data import put_back, take_out
from controlplane.agent.secrets.values import (
    MARK,
    REFERENCE,
    SECRETS_LIMIT,
    hides_value,
    list_hidden_texts,
    list_secrets,
    reveal,
)
from controlplane.agent.tracing import AttemptSpans

log = structlog.get_logger()


class AttemptStage(Enum):
    STARTING = "its STARTED report is not answered yet, or it waits for a slot"
    RUNNING = "its code runs"
    KILLED = "the agent is killing its code; `final_report` is the report to send"
    ENDED = "no process of it is left; its last report is not answered yet"


@dataclass
class HeldAttempt:
    """An attempt that this worker holds: its item of the claim, its files, its output and its secrets."""

    item: dict[str, Any]
    parent: Folder  # contains the folders of all attempts
    default_timeout: float | None = None
    folder: Path = field(init=False)  # for the files of this attempt only
    progress_file: ProgressFile = field(init=False)
    checkpoint_file: CheckpointFile = field(init=False)
    runner: Runner = field(init=False, repr=False)  # set once the action is known to be allowed
    stage: AttemptStage = AttemptStage.STARTING
    final_report: dict[str, Any] | None = None  # None while KILLED means lost: report nothing
    pid: int | None = None
    times_out_at: float | None = None  # monotonic
    has_folder: bool = True
    is_accepted: bool = False  # its STARTED was accepted: its code may begin as soon as a slot is free
    begun_at: float | None = None  # monotonic
    is_silent: bool = False  # its code gives no sign of life
    log: AttemptLog = field(default_factory=AttemptLog)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)  # by name, as far as they are known
    mask: SecretMask = field(default_factory=SecretMask, repr=False)
    spans: AttemptSpans = field(init=False, repr=False)
    mask_of_named: SecretMask = field(
        default_factory=SecretMask, repr=False
    )  # masks values that are secret only by their name

    def __post_init__(self) -> None:
        self.spans = AttemptSpans(self.item)
        job = self.item["job"]
        self._own_payload, self._data = take_out(job.get("payload"), job.get("payload_from") or ())
        self.folder = self.parent.path / self.id
        self.progress_file = ProgressFile(self.folder / "progress")
        self.checkpoint_file = CheckpointFile(self.folder / "checkpoint", self._record_refusal)

    @property
    def files(self) -> list[ReportedFile]:
        """Files through which the code reports."""
        return [self.progress_file, self.checkpoint_file]

    @property
    def sources(self) -> dict[str, AttemptLog | ReportedFile]:
        """Sources of reports while the code runs, by the event of their reports."""
        return {"LOG": self.log, "PROGRESS": self.progress_file, "CHECKPOINT": self.checkpoint_file}

    @property
    def id(self) -> str:
        return str(self.item["id"])

    @property
    def is_live(self) -> bool:
        return self.stage is not AttemptStage.ENDED

    @property
    def slots(self) -> int:
        """Return how many slots of the worker its code uses."""
        return int(self.item["job"].get("worker_slots") or 1)

    @property
    def timeout(self) -> float | None:
        seconds = self.item["job"].get("timeout_seconds")
        return self.default_timeout if seconds is None else float(seconds)

    def secret_names(self) -> set[str]:
        """Return the secrets that the job names. Raise WrongSecret."""
        return {secret[REFERENCE] for secret in self._list_secrets() if REFERENCE in secret}

    @property
    def has_secrets(self) -> bool:
        return bool(self._list_secrets())

    def add_secrets(self, secrets: dict[str, str]) -> None:
        """Add secrets and mask them in all later reports, together with the hidden values of the job."""
        self.secrets |= secrets
        marked = [secret[MARK] for secret in self._list_secrets() if MARK in secret]
        self.mask = SecretMask([*self.secrets.values(), *marked])
        job = self.item["job"]
        paths = job.get("payload_from") or {}
        hidden = {f"password{n}": self._data[at] for n, at in enumerate(paths) if hides_value(paths[at])}
        self.mask_of_named = SecretMask(
            islice(list_hidden_texts([job["action"].get("env"), job.get("payload"), hidden]), SECRETS_LIMIT)
        )

    def mask_report(self, report: dict[str, Any]) -> dict[str, Any]:
        """Return the report as it may be sent.

        Programs read outputs and checkpoints, so only secrets are masked there.
        """
        return mask_passwords(self.mask_of_named.mask_report(self.mask.mask_report(report), READ_BY_PEOPLE))

    def revealed_item(self) -> dict[str, Any]:
        """Return the claimed item with its secrets. Only the code may get it."""
        job, action = self.item["job"], self.item["job"]["action"]
        if "env" in action:
            action = {**action, "env": reveal(action["env"], self.secrets)}
        payload = job.get("payload")
        if takes_references(action):
            payload = put_back(reveal(self._own_payload, self.secrets), self._data)
        return {**self.item, "job": {**job, "action": action, "payload": payload}}

    def _list_secrets(self) -> list[dict[str, str]]:
        job = self.item["job"]
        of_payload = list_secrets(self._own_payload) if takes_references(job["action"]) else ()
        return [*list_secrets(job["action"].get("env")), *of_payload]

    def open_files(self, *, has_folder: bool = True) -> dict[str, Path]:
        """Create the files of the attempt. Return their paths by variable. Raise OSError.

        Without a folder they are in the folder of all attempts, because a folder costs more than a short task.
        """
        self.parent.keep()  # a cleaner of the temporary directory may have removed it
        self.has_folder = has_folder
        if has_folder:
            self.folder.mkdir()
        else:
            for file in self.files:
                file.move(self.folder.with_name(f"{self.id}.{file.path.name}"))
        self.checkpoint_file.write_previous(self.item["job"].get("checkpoint"))
        return {"JOB_PROGRESS": self.progress_file.path, "JOB_CHECKPOINT": self.checkpoint_file.path}

    def close_files(self) -> list[dict[str, Any]]:
        """Remove the files of the attempt and return the last reports from them."""
        news = [report for file in self.files for report in file.close()]
        if not self.has_folder:
            for file in self.files:
                with suppress(OSError):  # the code may have put a folder there
                    file.path.unlink(missing_ok=True)
            return news
        remove_private_folder(self.folder)
        remove_tree(self.folder)
        return news

    def _record_refusal(self, why: str) -> None:
        log.warning("Checkpoint not kept", **log_fields(self), why=why)
        self.log.write_chunk("STDERR", f"{why}: it is not kept\n".encode())


def report_for(attempt: HeldAttempt, ended: ChildExit) -> dict[str, Any]:
    try:
        return attempt.runner.build_report(ended)
    except Exception as error:  # a strange result must not affect other jobs
        log.exception("The result of a job could not be read", **log_fields(attempt))
        return failure_report("NO_RESULT", f"the result of the process cannot be read: {error!r}"[:MESSAGE_LIMIT])


def explain_kill(report: dict[str, Any], child_exit: ChildExit, kernel_kills: memory.KernelKills) -> dict[str, Any]:
    """Add to the report of code that died of SIGKILL that the kernel had run out of memory.

    The attempt is lost all the same, because another process may have used the memory.
    """
    is_killed = child_exit.status == -signal.SIGKILL and report.get("error", {}).get("code") == "WORKER_CRASHED"
    if is_killed and kernel_kills.has_killed():
        report["error"]["message"] += ", when the kernel had run out of memory"
    return report


def log_fields(attempt: HeldAttempt) -> dict[str, str]:
    return {"attempt": attempt.id, "job": str(attempt.item["job"]["id"])}
