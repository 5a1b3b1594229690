"""One attempt on this machine, and what is reported of its end."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent import memory
from controlplane.agent.checkpoint_file import CheckpointFile
from controlplane.agent.child_process import ChildExit
from controlplane.agent.folder import Folder
from controlplane.agent.limits import MESSAGE_LIMIT
from controlplane.agent.logs import AttemptLog
from controlplane.agent.outcomes import failure_report
from controlplane.agent.policy import takes_references
from controlplane.agent.progress_file import ProgressFile
from controlplane.agent.reported_file import ReportedFile
from controlplane.agent.runners import Runner
from controlplane.agent.secret_mask import READ_BY_PEOPLE, SecretMask
from controlplane.agent.secret_values import MARK, MOST, REFERENCE, list_hidden_texts, list_secrets, reveal
from controlplane.agent.tracing import AttemptSpans

log = structlog.get_logger()


class AttemptStage(Enum):
    STARTING = "its STARTED has not been answered"
    RUNNING = "its code runs"
    KILLED = "we are killing its code; `verdict` is what to report"
    ENDED = "nothing of it runs; its last report has not been answered"


@dataclass
class Attempt:
    item: dict[str, Any]
    parent: Folder  # of the folders of all attempts
    default_timeout: float | None = None
    folder: Path = field(init=False)  # for its files alone
    progress_file: ProgressFile = field(init=False)
    checkpoint_file: CheckpointFile = field(init=False)
    runner: Runner = field(init=False, repr=False)  # from when it is known to be allowed here
    stage: AttemptStage = AttemptStage.STARTING
    verdict: dict[str, Any] | None = None  # None while KILLED: lost, so there is nothing to report
    pid: int | None = None
    times_out_at: float | None = None  # monotonic
    is_silent: bool = False  # its code gives no sign of life
    log: AttemptLog = field(default_factory=AttemptLog)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)  # by their names, as far as they are known
    mask: SecretMask = field(default_factory=SecretMask, repr=False)
    spans: AttemptSpans = field(init=False, repr=False)
    mask_of_named: SecretMask = field(default_factory=SecretMask, repr=False)  # of what is a secret by its name alone

    def __post_init__(self) -> None:
        self.spans = AttemptSpans(self.item)
        self.folder = self.parent.path / self.id
        self.progress_file = ProgressFile(self.folder / "progress")
        self.checkpoint_file = CheckpointFile(self.folder / "checkpoint", self._record_refusal)

    @property
    def files(self) -> list[ReportedFile]:
        """What its code says, beside what it writes."""
        return [self.progress_file, self.checkpoint_file]

    @property
    def sources(self) -> dict[str, AttemptLog | ReportedFile]:
        """What is reported while its code runs, by the event of its reports."""
        return {"LOG": self.log, "PROGRESS": self.progress_file, "CHECKPOINT": self.checkpoint_file}

    @property
    def id(self) -> str:
        return str(self.item["id"])

    @property
    def is_live(self) -> bool:
        return self.stage is not AttemptStage.ENDED

    @property
    def timeout(self) -> float | None:
        seconds = self.item["job"].get("timeout_seconds")
        return self.default_timeout if seconds is None else float(seconds)

    def secret_names(self) -> set[str]:
        """Those that its job names. Raises WrongSecret."""
        return {secret[REFERENCE] for secret in self._list_secrets() if REFERENCE in secret}

    def learn_secrets(self, secrets: dict[str, str]) -> None:
        """From now on nothing that is reported has them, nor what its job has marked."""
        self.secrets |= secrets
        marked = [secret[MARK] for secret in self._list_secrets() if MARK in secret]
        self.mask = SecretMask([*self.secrets.values(), *marked])
        job = self.item["job"]
        self.mask_of_named = SecretMask(islice(list_hidden_texts([job["action"].get("env"), job.get("payload")]), MOST))

    def mask_report(self, report: dict[str, Any]) -> dict[str, Any]:
        """As it may be reported. What programs read, an output and a checkpoint, has lost no more than real secrets."""
        return self.mask_of_named.mask_report(self.mask.mask_report(report), READ_BY_PEOPLE)

    def revealed_item(self) -> dict[str, Any]:
        """What was claimed, with its secrets in it: for its code alone."""
        job, action = self.item["job"], self.item["job"]["action"]
        if "env" in action:
            action = {**action, "env": reveal(action["env"], self.secrets)}
        payload = reveal(job.get("payload"), self.secrets) if takes_references(action) else job.get("payload")
        return {**self.item, "job": {**job, "action": action, "payload": payload}}

    def _list_secrets(self) -> list[dict[str, str]]:
        job = self.item["job"]
        of_payload = list_secrets(job.get("payload")) if takes_references(job["action"]) else ()
        return [*list_secrets(job["action"].get("env")), *of_payload]

    def open_files(self) -> dict[str, Path]:
        """By the variables that name them. Raises OSError."""
        self.parent.keep()  # who clears the temporary directory may have removed it
        self.folder.mkdir()
        self.checkpoint_file.write_previous(self.item["job"].get("checkpoint"))
        return {"JOB_PROGRESS": self.progress_file.path, "JOB_CHECKPOINT": self.checkpoint_file.path}

    def close_files(self) -> list[dict[str, Any]]:
        """The last of them; they are removed."""
        news = [report for file in self.files for report in file.close()]
        shutil.rmtree(self.folder, ignore_errors=True)
        return news

    def _record_refusal(self, why: str) -> None:
        log.warning("Checkpoint not kept", **log_fields(self), why=why)
        self.log.write_chunk("STDERR", f"{why}: it is not kept\n".encode())


def report_for(attempt: Attempt, ended: ChildExit) -> dict[str, Any]:
    try:
        return attempt.runner.build_report(ended)
    except Exception as error:  # whatever the code handed back: it costs no other job
        log.exception("Result not understood", **log_fields(attempt))
        return failure_report("NO_RESULT", f"what the process handed back cannot be read: {error!r}"[:MESSAGE_LIMIT])


def explain_kill(report: dict[str, Any], child_exit: ChildExit, kernel_kills: memory.KernelKills) -> dict[str, Any]:
    """The report of code that died of SIGKILL says so when the kernel had no memory left; it is lost all the same, for
    it may have been another's doing."""
    is_killed = child_exit.status == -signal.SIGKILL and report.get("error", {}).get("code") == "WORKER_CRASHED"
    if is_killed and kernel_kills.has_killed():
        report["error"]["message"] += ", when the kernel had run out of memory"
    return report


def log_fields(attempt: Attempt) -> dict[str, str]:
    return {"attempt": attempt.id, "job": str(attempt.item["job"]["id"])}
