"""The worker that is woken for jobs that use several slots."""

import uuid

from controlplane.serving.choice import Choice
from jobs.sql.rows.hints import ClaimableJobs, WorkerLoad

SMALL, BUSY, FREE = (uuid.UUID(int=number) for number in (1, 2, 3))
LOADS = {SMALL: (0, 2), BUSY: (1, 4), FREE: (4, 9)}


def chosen_for(jobs, slots):
    loads = [WorkerLoad(server, "default", ["script"], held, most) for server, (held, most) in LOADS.items()]
    row = ClaimableJobs("default", ["script"], [], [uuid.uuid4() for _ in range(jobs)], slots)
    choice = Choice(loads, [str(server) for server in LOADS])
    return [uuid.UUID(server) for _, server in choice.choose(row, row.jobs, lambda job: False, {}) if server]


def test_only_a_worker_with_enough_free_slots_is_woken():
    assert chosen_for(1, slots=1) == [SMALL]
    assert chosen_for(1, slots=3) == [BUSY]
    assert chosen_for(1, slots=5) == [FREE]
    assert chosen_for(1, slots=6) == []


def test_the_slots_of_each_job_count_as_load_of_its_worker():
    assert chosen_for(4, slots=2) == [SMALL, BUSY, FREE, FREE]
