"""Programs of the stress runs: the code of their jobs, sweeps at random, and tokens for each namespace."""

# The code writes down when it runs. Its lines end when its process is killed.
WORK = """
import json, os, time
from controlplane.agent import context

LINES = os.open(os.environ["STRESS_LINES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(what):
    words = (time.monotonic(), context.job, context.attempt, context.server, what)
    os.write(LINES, (" ".join(map(str, words)) + "\\n").encode())


def work(payload):
    note("begin " + json.dumps(payload["costs"], separators=(",", ":")))
    end = time.monotonic() + payload["seconds"]
    try:
        while time.monotonic() < end:
            time.sleep(0.05)
            note("runs")
        if payload.get("fails"):
            raise RuntimeError("the test wants it")
        return payload.get("output")
    finally:
        note("end")
"""
# Sweeps and ticks of waits at random. Each tick that was done writes down its begin and end.
SWEEPS = """
import random, sys, time
import django
django.setup()
from django.db import DatabaseError
from jobs.services import sweep, waits
chance = random.Random(sys.argv[1])
while True:
    time.sleep(3 * chance.random())
    try:
        began = time.time()
        waits.end_waits()
        with open(sys.argv[2], "a") as ticks:
            ticks.write(f"{began} {time.time()}\\n")
        sweep.run_sweep()
    except (DatabaseError, sweep.SweepFailed) as error:
        print(f"{type(error).__name__}: {error}")
"""
TOKENS = """
import django, json, sys
django.setup()
from liveness.models import Role
from liveness.services import tokens
names = sys.argv[1:]
print(json.dumps({f"{name} {role}".removeprefix("default "): tokens.create_token(f"{name} {role}", role, namespace=name)
                  for name in names for role in Role.values}))
"""
