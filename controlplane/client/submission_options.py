"""Commands that submit work and wait for it."""

from __future__ import annotations

import argparse

from controlplane.agent.durations import duration
from controlplane.agent.whole_numbers import integer, whole
from controlplane.client import commands
from controlplane.client.shared_options import AddCommand, add_namespace, add_note, add_wait


def add_submissions(command: AddCommand) -> None:
    add = command("submit", commands.submit, "submit a job: a command, or one that the options describe")
    add(
        "script",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="one text for /bin/sh, or a program and its arguments; put all options in front of it",
    )
    add("--callable", metavar="MODULE:FUNCTION")
    add("--handler", metavar="NAME")
    add("--name", metavar="TEXT", help="name in lists and on pages (default: its action)")
    add("--file", metavar="FILE", help="file with a job, or a list of jobs, as JSON; - is standard input")
    add("--payload", metavar="JSON", help="payload for the code")
    add("--tag", action="append", dest="tags", metavar="TAG", help="tag that the worker must have; may be repeated")
    add("--priority", type=integer, metavar="N", help="-1000 to 1000, higher first")
    add("--timeout-seconds", type=duration, metavar="DURATION", help="timeout of each attempt")
    add("--max-retries", type=whole, metavar="N", help="number of retries after an error of its code")
    add("--key", help="idempotency key: with the same key, no second job is submitted")
    add("--unique", metavar="KEY", help="unique key: while a job with it waits or runs, that job is returned")
    add("--limit", action="append", dest="limits", metavar="KEY", help="key whose limit counts; may be repeated")
    add("--worker-slots", type=whole, metavar="N", help="slots of its worker that each attempt uses (default: 1)")
    add("--unmatched", choices=("fail", "wait"), help="what to do when no worker alive has its tags")
    add("--on-worker-lost", choices=("RESUBMIT", "FAIL"))
    add("--require-worker", action="store_const", const=True, help="refuse the job if no worker can run it now")
    add("-f", "--follow", action="store_true", help="print its output while it runs, and wait for its end")
    add_namespace(add)
    add_wait(add)
    add = command("execute", commands.execute, "start an execution")
    add("file", metavar="FILE", help="file with the execution as JSON, with name and steps; - is standard input")
    add("--key", help="idempotency key: with the same key, no second execution starts")
    add("--limit", action="append", dest="limits", metavar="KEY", help="key whose slot the execution holds")
    add_namespace(add)
    add_wait(add)
    add = command("send-signal", commands.send_signal, "send a signal to the steps that wait for it")
    add("name", metavar="NAME", help="name of the signal, like paid:42")
    add("--body", metavar="JSON", help="body, which becomes the output of the steps (default: null)")
    add("--key", help="idempotency key: with the same key, no second signal is sent")
    add_namespace(add)
    add = command("answer", commands.answer, "answer a step that asks people", "execution")
    add("step", metavar="STEP", help="key of the step")
    add("choice", metavar="CHOICE", help="one of its choices, like approve")
    add("--values", metavar="JSON", help='values of its fields, like {"version": "4.2"}')
    add_note(add)
    add = command("wait", commands.wait, "wait until jobs have ended", "jobs")
    add("--timeout", type=duration, metavar="DURATION", help="time to wait; then the exit code is 5")
