"""Claims and hints find jobs of every set of tags that a worker has, and pay nothing for all other sets."""

import itertools
import random

import pytest
from django.db import connection

from jobs.models import WorkerJob
from jobs.services import hints
from tests.integration.races.test_hot_paths import submit_many
from tests.support.plans import executed, plan_of_execution
from tests.support.queries import CapturedQueries
from tests.support.rounds import some_seeds

TAGS = ["a", "A", "a-b", "ab", "b", "ä", "script", "z", "_", "~", "10", "9", "über alles"]


def insert(sets):
    """Store a waiting job for each set of tags."""
    (first,) = submit_many(1)
    columns = [field.column for field in WorkerJob._meta.local_concrete_fields]
    others = ", ".join(f'"{name}"' for name in columns if name not in ("id", "required_tags"))
    with connection.cursor() as cursor:
        cursor.executemany(
            f"insert into jobs_workerjob (required_tags, {others})"  # noqa: S608
            f" select %s::text[], {others} from jobs_workerjob where id = %s",
            [(list(tags), first) for tags in sets],
        )
    WorkerJob.objects.filter(pk=first).delete()


def found(*offers):
    return {tuple(row.tags) for row in hints.list_claimable_jobs(10, [("default", tags) for tags in offers])}


@pytest.mark.parametrize("seed", some_seeds(3, 6))
def test_exactly_the_sets_that_a_worker_has_are_found_in_any_order(db, seed):
    chance = random.Random(seed)
    sizes = [0, 1, 1, 2, 2, 3, 4]
    sets = {tuple(chance.sample(TAGS, chance.choice(sizes))) for _ in range(150)} | {("script",), ()}
    insert(sets)
    offers = [chance.sample(TAGS, chance.randint(0, 8)) for _ in range(40)] + [TAGS, []]
    for offer in offers:
        assert found(offer) == {tags for tags in sets if set(tags) <= set(offer)}, offer
    assert found(*offers) == sets


def test_every_set_of_a_small_alphabet_is_found_by_every_worker(db):
    every = [tags for size in range(4) for tags in itertools.combinations("abcd", size)]
    insert(every)
    for offer in every:
        assert found(list(offer)) == {tags for tags in every if set(tags) <= set(offer)}


def test_a_claim_reads_no_set_that_its_worker_lacks(worker, settings):
    settings.JOBS = {"WAITING_TAG_SETS_LIMIT": None}
    (wanted,) = submit_many(1)
    insert([("script", f"t{number}") for number in range(3000)] + [(f"s{number}",) for number in range(3000)])
    with connection.cursor() as cursor:
        cursor.execute("analyze jobs_workerjob")
    one = worker(tags=["script", "host-7", "zeta"])
    with CapturedQueries(connection) as queries:
        assert [attempt["job"]["id"] for attempt in one.claim(limit=5)] == [str(wanted)]
    submit_many(1)
    plan = plan_of_execution(executed(queries, "claim_jobs"))
    reads = [node for node in plan if node.get("Relation Name") == "jobs_workerjob"]
    assert {node.get("Index Name") for node in reads} >= {"job_to_claim"}
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in reads) < 40
    assert sum(node.get("Rows Removed by Filter", 0) for node in reads) < 20
