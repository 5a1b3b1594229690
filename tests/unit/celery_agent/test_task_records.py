"""Records of tasks in the heart, and the messages on the pipe that they are made of."""

from __future__ import annotations

import json

import pytest

from controlplane.agent.celery.heart import task_records
from controlplane.agent.celery.heart.task_records import AGAIN_AFTER, NAMES, NOTABLE_AFTER, OTHERS, SAME, TaskRecords
from controlplane.agent.celery.messages import MessagesDropped, TaskEnded, TaskHeld, TaskRunning, decode, encode


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def records_of(clock, *messages, level="notable"):
    records = TaskRecords(level, clock)
    for message in messages:
        records.read(decode(encode(message)))
    return records


def received(tag, name="work", *, is_known=False):
    return TaskHeld(tag, f"id-{tag}", name, "orders", attempt=f"attempt-{tag}", is_known=is_known)


def test_a_short_task_that_completes_is_only_counted(clock):
    records = records_of(clock, received("1"), TaskRunning("1", 7), TaskEnded("1", "COMPLETED", 0.25, None))
    sums = {"name": "work", "completed": 1, "failed": 0, "retried": 0, "lost": 0, "seconds": 0.25}
    assert records.next_batch() == {"tasks": [], "counter": records.counter, "tally": [sums]}
    records.confirm()
    assert records.next_batch() is None


def test_a_task_that_is_held_for_a_second_is_recorded(clock):
    records = records_of(clock, received("1"), TaskRunning("1", 7))
    clock.now += NOTABLE_AFTER - 0.01
    assert records.next_batch() is None
    clock.now += 0.01
    (task,) = records.next_batch()["tasks"]
    assert (task["id"], task["state"], task["queue"]) == ("id-1", "RUNNING", "orders")
    assert "args" not in task
    records.confirm()
    assert records.next_batch() is None
    records.read(TaskEnded("1", "COMPLETED", 2.0, None))
    assert [task["state"] for task in records.next_batch()["tasks"]] == ["COMPLETED"]


@pytest.mark.parametrize("end", ["FAILED", "RETRIED"])
def test_a_short_task_that_fails_or_is_retried_is_recorded(clock, end):
    records = records_of(clock, received("1"), TaskEnded("1", end, 0.1, "ValueError: no such order"))
    (task,) = records.next_batch()["tasks"]
    assert task["state"] == end and task["error"] == {"code": "ValueError", "message": "no such order"}


@pytest.mark.parametrize("end", ["COMPLETED", "REVOKED"])
def test_a_short_task_that_was_lost_or_retried_before_is_recorded(clock, end):
    records = records_of(clock, received("1", is_known=True), TaskRunning("1", 7), TaskEnded("1", end, 0.1, None))
    assert [task["state"] for task in records.next_batch()["tasks"]] == [end]


def test_with_record_servers_no_task_is_recorded(clock):
    records = records_of(clock, received("1"), TaskEnded("1", "FAILED", 0.1, "E"), level="servers")
    assert records.next_batch() is None


def test_with_record_everything_each_task_is_recorded(clock):
    records = records_of(clock, received("1"), level="everything")
    assert [task["state"] for task in records.next_batch()["tasks"]] == ["HELD"]


def test_an_unanswered_batch_is_sent_again(clock):
    records = records_of(clock, received("1"), TaskEnded("1", "FAILED", 0.1, "E: x"))
    first = records.next_batch()
    records.take_back()
    assert records.next_batch() == first


def test_sums_count_from_the_start_so_a_repeated_batch_counts_once(clock):
    records = records_of(clock, received("1"), TaskEnded("1", "COMPLETED", 0.25))
    first = records.next_batch()
    records.take_back()
    assert records.next_batch() == first
    records.confirm()
    for line in received("2"), TaskEnded("2", "COMPLETED", 0.25):
        records.read(line)
    assert [(sums["completed"], sums["seconds"]) for sums in records.next_batch()["tally"]] == [(2, 0.5)]


def test_task_names_above_the_limit_share_one_sum(clock):
    records = records_of(clock)
    for nth in range(NAMES + 10):
        records.read(received(str(nth), f"name {nth}"))
        records.read(TaskEnded(str(nth), "COMPLETED", 0))
    tally = records.next_batch()["tally"]
    assert len(tally) == NAMES and sum(sums["completed"] for sums in tally) == NAMES + 10
    assert next(sums for sums in tally if sums["name"] == OTHERS)["completed"] == 11


def test_a_task_that_is_held_for_long_is_recorded_again(clock):
    records = records_of(clock, received("1"), TaskRunning("1", 7))
    clock.now += 10
    records.next_batch()
    records.confirm()
    clock.now += AGAIN_AFTER - 0.01
    assert records.next_batch() is None
    clock.now += 0.01
    (task,) = records.next_batch()["tasks"]
    assert (task["held_seconds"], task["running_seconds"]) == (10 + AGAIN_AFTER, 10 + AGAIN_AFTER)


def test_batches_are_limited_and_lose_no_record(clock):
    records = records_of(clock)
    for nth in range(5):
        records.read(received(f"same {nth}"))
        records.read(TaskEnded(f"same {nth}", "FAILED", 0, "E: x"))
    for task in records._ended:
        task.held = task.held._replace(id="same")
    for nth in range(1200):
        records.read(received(str(nth)))
        records.read(TaskEnded(str(nth), "FAILED", 0, "E: " + "é" * 1500, "t" * 2000))
    attempts = []
    while (batch := records.next_batch()) is not None:
        assert len(json.dumps(batch)) < 1024 * 1024 and len(batch["tasks"]) <= 500
        assert sum(task["id"] == "same" for task in batch["tasks"]) <= SAME
        attempts += [task["attempt"] for task in batch["tasks"]]
        records.confirm()
    assert len(attempts) == len(set(attempts)) == 1205


def test_names_and_texts_of_tasks_are_made_storable(clock):
    held = TaskHeld("1", "id\n\ud800\x00", "n" * 300, "q", attempt="a", args="\x1b[2J" * 500)
    records = records_of(clock, held, TaskEnded("1", "FAILED", 0, "E: \x00\ud800", "at\nline"))
    (task,) = records.next_batch()["tasks"]
    assert task["id"] == "id\\n?\\x00" and len(task["name"]) == 255 and len(task["args"]) == 1000
    assert "\x1b" not in task["args"]
    assert task["error"] == {"code": "E", "message": "?", "traceback": "at\nline"}


def test_an_end_during_the_report_of_running_is_not_lost(clock):
    records = records_of(clock, received("1"), TaskRunning("1", 7), level="everything")
    records.next_batch()
    records.read(TaskEnded("1", "COMPLETED", 1.0))
    records.confirm()
    assert [task["state"] for task in records.next_batch()["tasks"]] == ["COMPLETED"]


def test_an_attempt_is_found_while_its_task_is_held(clock):
    records = records_of(clock, received("1"), received("2"), TaskEnded("2", "COMPLETED", 0))
    assert records.ids_of({"attempt-1", "attempt-2", "attempt-3"}) == ["id-1"]


def test_running_tasks_are_known_unless_messages_were_dropped(clock):
    records = records_of(clock, received("1"), received("2"), TaskRunning("2", None), TaskRunning("2", 7))
    assert records.running() == {"2"} and records.pids() == {7}
    assert records.counts() == {"running": 1, "prefetched": 1}
    records.read(MessagesDropped())
    assert records.running() is None and records.holds()


def test_a_task_whose_end_was_dropped_is_not_reported_as_running_forever(clock):
    records = records_of(clock, received("1"), received("2"), TaskRunning("1", 7), TaskRunning("2", 7))
    clock.now += NOTABLE_AFTER
    records.next_batch()
    records.confirm()
    records.read(MessagesDropped())
    records.read(received("2")._replace(held_for=2.0))
    clock.now += AGAIN_AFTER
    assert [task["id"] for task in records.next_batch()["tasks"]] == ["id-2"]


@pytest.mark.parametrize("end", ["COMPLETED", "RETURNED", "REVOKED"])
def test_a_new_heart_reports_the_end_of_a_task_that_the_earlier_heart_reported(clock, end):
    listed = received("1")._replace(held_for=2.0)
    records = records_of(clock, listed, TaskRunning("1", 7), TaskEnded("1", end, 0.1))
    assert [task["state"] for task in records.next_batch()["tasks"]] == [end]


@pytest.mark.parametrize("end", ["RETURNED", "REVOKED"])
def test_an_end_after_a_report_without_an_answer_is_reported(clock, end):
    records = records_of(clock, received("1"), level="everything")
    records.next_batch()
    records.take_back()
    records.read(TaskEnded("1", end, 0.1))
    assert [task["state"] for task in records.next_batch()["tasks"]] == [end]


def test_a_worker_may_forget_an_end_once_the_control_plane_knows_it(clock):
    failed, short = (
        TaskEnded("1", "FAILED", kept_attempt="attempt-1"),
        TaskEnded("2", "COMPLETED", kept_attempt="attempt-2"),
    )
    records = records_of(clock, received("1"), received("2"), failed, short, TaskEnded("3", "COMPLETED"))
    assert records.take_known_ends() == ["attempt-2"], "it is only counted"
    records.next_batch()
    records.take_back()
    records.read(failed)
    assert records.take_known_ends() == [], "no answer yet"
    records.next_batch()
    records.confirm()
    assert (records.take_known_ends(), records.take_known_ends()) == (["attempt-1"], [])


def test_a_late_end_does_not_end_the_next_delivery_with_the_same_tag(clock):
    late = TaskEnded("1", "LOST", kept_attempt="attempt-1")
    records = records_of(clock, received("1"), received("1")._replace(attempt="attempt-2"), late)
    assert records.counts() == {"running": 0, "prefetched": 1}
    assert records.take_known_ends() == ["attempt-1"]


def test_a_heart_that_began_during_a_task_reports_when_the_task_started(clock):
    records = records_of(
        clock, received("1")._replace(held_for=60.0), TaskRunning("1", 7), TaskEnded("1", "FAILED", 50.0)
    )
    assert records.next_batch()["tasks"][0]["running_seconds"] == 50.0


def test_a_revoked_task_is_no_longer_held_and_not_recorded(clock):
    records = records_of(clock, received("1"), TaskEnded("1", "DROPPED", 0.0, None))
    assert records.next_batch() is None and not records.holds()


def test_the_latest_ends_wait_for_a_registration_that_does_not_come(clock, monkeypatch):
    monkeypatch.setattr(task_records, "MOST_ENDED", 2)
    records = records_of(clock, *(m for tag in "123" for m in (received(tag), TaskEnded(tag, "FAILED", 0.1, "x: y"))))
    assert [task["attempt"] for task in records.next_batch()["tasks"]] == ["attempt-2", "attempt-3"]


def test_an_end_that_the_control_plane_wants_to_get_again_stays(clock):
    records = records_of(clock)
    records.note("QUARANTINED", "id-1", "work", "orders", "lost too often")
    [first] = records.next_batch()["tasks"]
    records.confirm({first["attempt"]})
    clock.now += 5
    [again] = records.next_batch()["tasks"]
    assert (again["attempt"], again["held_seconds"]) == (first["attempt"], 5)
    records.confirm()
    assert records.next_batch() is None
