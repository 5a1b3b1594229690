"""Work of one client, the same for our code and for the other systems: `python -m tests.bench.peer_work PARTY WORK …`.

The program prints `ready`, waits for a line, does the work, and prints its CPU seconds. It calls our services without
HTTP, and the others as their documentation shows.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable

URL = os.environ["DATABASE_URL"]
LIST = 1000
"""Jobs per submission."""
Go = Callable[[], None]


def ours(go: Go, work: str, number: int, *which: str) -> None:
    import django  # each party has its own packages

    django.setup()

    from jobs.services import claiming, reporting, submission
    from jobs.services.reports import Report, ReportEvent
    from liveness.models import ApiToken
    from liveness.services.tokens import ServerToken
    from tests.bench.over_http import JOB

    owner = ApiToken.objects.get(name="bench client")
    if work == "submit":
        go()
        for _ in range(number // LIST):
            submission.submit_jobs(owner, [dict(JOB) for _ in range(LIST)])
        return
    from uuid import UUID

    caller = ServerToken(UUID(which[0]), 1)
    go()
    while ids := [attempt.id for attempt in claiming.claim_jobs(caller, number)[0]]:
        for event in ReportEvent.STARTED, ReportEvent.COMPLETED:
            results = reporting.record_reports(caller, [Report(id, event, output=1) for id in ids])
            assert all(result.accepted for result in results)


async def pgqueuer(go: Go, work: str, number: int) -> None:
    import asyncpg
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.models import Job
    from pgqueuer.qm import QueueManager
    from pgqueuer.queries import Queries
    from pgqueuer.types import QueueExecutionMode

    connection = await asyncpg.connect(URL)
    queries = Queries(AsyncpgDriver(connection))
    if work == "install":
        go()
        await queries.install()
    elif work == "submit":
        go()
        for _ in range(number // LIST):
            await queries.enqueue(["nothing"] * LIST, [b'{"n": 1}'] * LIST, [0] * LIST)
    else:
        manager = QueueManager(queries)

        @manager.entrypoint("nothing")
        async def nothing(job: Job) -> None:
            pass

        go()
        await manager.run(batch_size=number, mode=QueueExecutionMode.drain)


async def procrastinate(go: Go, work: str, number: int) -> None:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=URL))

    @app.task(name="nothing")
    async def nothing(n: int) -> None:
        pass

    async with app.open_async():
        go()
        if work == "install":
            await app.schema_manager.apply_schema_async()
        elif work == "submit":
            for _ in range(number // LIST):
                await nothing.batch_defer_async(*[{"n": 1}] * LIST)
        else:
            await app.run_worker_async(concurrency=number, wait=False, install_signal_handlers=False)


def run(work: Awaitable[None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def main(party: str, work: str, number: str = "0", *which: str) -> None:
    spent: list[float] = []

    def go() -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        spent.append(time.process_time())

    if party == "ours":
        ours(go, work, int(number), *which)
    else:
        run({"pgqueuer": pgqueuer, "procrastinate": procrastinate}[party](go, work, int(number)))
    sys.stdout.write(f"{time.process_time() - spent[0]}\n")


if __name__ == "__main__":
    from tests.bench import peer_work as named  # procrastinate requires its tasks in a named module

    named.main(*sys.argv[1:])
