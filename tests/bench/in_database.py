"""Cost of the liveness check, the recovery and the claim, without HTTP."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from jobs.conf import JobsSettings
from jobs.models import Attempt
from jobs.services import claiming, recovery
from jobs.services.liveness_check import check_liveness
from liveness.models import Server
from liveness.services import tokens
from tests.bench.database import add_jobs, bare_copy, begin, begin_observing, run, run_all_jobs, settle_down
from tests.bench.rows import Row, Step, alternate

MANY, SETS = 100_000, 20_000


def seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def dead_server(data_dir: Path, step: Step) -> Row:
    """Resubmit the 100,000 running jobs of a dead server."""

    def prepared() -> None:
        begin(1)
        add_jobs(MANY, ["script"])
        run_all_jobs()

    def recovered() -> float:
        prepared()
        run("update liveness_server set state = 'ERROR', state_actor = 'server'")
        settle_down()
        took = seconds(recovery.recover_attempts)
        assert Attempt.objects.filter(state="RESUBMITTED").count() == MANY
        return took

    def bare() -> float:
        prepared()
        bare_copy("jobs_workerjob", "bare_job")
        bare_copy("jobs_attempt", "bare_attempt", filled=False)
        settle_down()
        update = "update bare_job set state = 'PENDING', attempt_id = null"
        insert = "insert into bare_attempt select * from jobs_attempt"
        return seconds(lambda: (run(update), run(insert)))

    value, reference = alternate(step, recovered, bare)
    return Row("dead_server", value, "s", reference, "bare UPDATE + INSERT … SELECT of 100,000", "≤ 3, then ≤ 2")


def claim(data_dir: Path, step: Step) -> list[Row]:
    """Claim a job behind jobs for other workers: 100,000 of one set of tags, or many with a tag of their own.

    The latter are as many as one client may have with WAITING_TAG_SETS_LIMIT, and the number before that limit existed.
    """

    def claims(in_front: int, sets: int = 0) -> float:
        ((_, token),) = begin(1)
        add_jobs(in_front, ["other"], priority=5)
        add_jobs(sets, ["own"], priority=5)
        run("update jobs_workerjob set required_tags = array[id::text] where required_tags = '{own}'")
        add_jobs(200, ["script"])
        settle_down()
        server_token = tokens.read_server_token(token)
        took = [seconds(lambda: claiming.claim_jobs(server_token, 1)) for _ in range(200)]
        assert Attempt.objects.count() == 200
        return statistics.median(took) * 1000

    allowed = JobsSettings.waiting_tag_sets_limit or 0
    one_set, few_sets, many_sets, reference = alternate(
        step, lambda: claims(MANY), lambda: claims(0, allowed), lambda: claims(0, SETS), lambda: claims(0)
    )
    against = "nothing in front"
    return [
        Row("claim", one_set, "ms", reference, against, "≤ 1.2"),
        Row(f"claim, {allowed:,} sets of tags", few_sets, "ms", reference, against, "≤ 1.2"),
        Row(f"claim, {SETS:,} sets of tags", many_sets, "ms", reference, against, "≤ 1.2"),
    ]


def check_of_many(due: int) -> Callable[[], float]:
    def checked() -> float:
        begin(MANY)
        run(
            "update liveness_server set created_observed = -5000, heard_observed = case"
            " when id in (select id from liveness_server limit %s) then -5000 else observed_now() end",
            [due],
        )
        settle_down()
        begin_observing()
        took = seconds(check_liveness)
        assert Server.objects.filter(state="DISCONNECTED").count() == due
        assert run("select reading from liveness_clock") > 0, "observed time stood still"
        return took

    return checked


def check_none_due(data_dir: Path, step: Step) -> Row:
    """Check 100,000 servers, none of them due."""

    def scan() -> float:
        begin(MANY)
        settle_down()
        return seconds(lambda: run("select count(*) from liveness_server where heard_observed < 0"))

    value, reference = alternate(step, check_of_many(0), scan)
    return Row("check_none_due", value * 1000, "ms", reference * 1000, "one sequential scan", "≤ 100 ms")


def check_10000_due(data_dir: Path, step: Step) -> Row:
    """Check 100,000 servers, of which 10,000 are due at once."""

    def bare() -> float:
        begin(MANY)
        bare_copy("liveness_server", "bare_server")
        bare_copy("liveness_serverevent", "bare_event", filled=False)
        settle_down()
        update = "update bare_server set state = 'DISCONNECTED' where id in (select id from bare_server limit 10000)"
        insert = "insert into bare_event select * from liveness_serverevent limit 10000"
        return seconds(lambda: (run(update), run(insert)))

    value, reference = alternate(step, check_of_many(10_000), bare)
    return Row("check_10000_due", value, "s", reference, "bare UPDATE + INSERT … SELECT of 10,000", "≤ 1 s")
