"""Jobs as a backend of `django.tasks` (before Django 6.0 `django-tasks`), as Django's documentation describes it."""

import importlib
import json
from dataclasses import replace
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.utils import timezone
from rest_framework.serializers import ValidationError

from controlplane.agent.from_code.outcomes import report_of
from controlplane.agent.processes.callable_child import run_callable
from controlplane.agent.runners.policy import DJANGO_FUNCTION, ActionPolicy
from jobs import django_task_runner, django_tasks
from jobs.django_task_runner import task_backends
from jobs.django_tasks import InvalidTask, TaskResultDoesNotExist, TaskResultStatus
from jobs.models import WorkerJob
from jobs.services import enqueueing, interventions
from liveness.services import tokens

BACKEND = "jobs.django_tasks.WorkerJobBackend"
TASKS = {
    "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"]},
    "patient": {"BACKEND": BACKEND, "OPTIONS": {"max_retries": 1, "timeout_seconds": 60, "tags": ["gpu"]}},
}
TAGS = ["handler:django-task", "queue:default", "queue:mail", "gpu"]


@pytest.fixture(autouse=True)
def tasks(settings):
    settings.TASKS = TASKS
    return importlib.import_module("tests.support.project_tasks")


@pytest.fixture
def work(db, worker, monkeypatch):
    """Return a function that runs waiting jobs as an agent does, until none waits, and returns their results."""
    one = worker(tags=TAGS)

    def run(attempt):
        assert one.start(attempt)["accepted"]
        monkeypatch.setenv("JOB_ID", str(attempt["job"]["id"]))
        assert attempt["job"]["action"] == {"type": "handler", "name": "django-task"}
        result = run_callable(DJANGO_FUNCTION, attempt["job"]["payload"])
        (said,) = one.report({"attempt": attempt["id"], **report_of(result.encode())})
        assert said["accepted"], said

    def work():
        done = []
        while claimed := one.claim(limit=1):
            run(claimed[0])
            done.append(claimed[0]["job"]["payload"]["args"])
        return done

    work.worker = one
    return work


def test_an_enqueued_task_is_ready_and_refreshed_it_is_successful(tasks, work):
    result = tasks.add.enqueue(1, b=2)
    assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [1], {"b": 2})
    assert result.task == tasks.add and result.backend == "default" and result.enqueued_at is not None
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    assert (result.errors, result.worker_ids, result.attempts, result.is_finished) == ([], [], 0, False)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    work()
    result.refresh()
    assert (result.status, result.return_value, result.is_finished) == (TaskResultStatus.SUCCESSFUL, 3, True)
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert (result.errors, result.worker_ids, result.attempts) == ([], [work.worker.id], 1)


def test_a_first_attempt_needs_no_query_and_a_later_one_knows_the_errors(
    tasks, worker, monkeypatch, django_assert_num_queries
):
    result = tasks.describe.enqueue("x")
    one = worker(tags=TAGS)
    attempt = one.hold()
    for name, value in {"JOB_ID": attempt["job"]["id"], "JOB_ATTEMPT": 1, "JOB_SERVER_ID": one.id}.items():
        monkeypatch.setenv(name, str(value))
    with django_assert_num_queries(0):
        output = json.loads(run_callable(DJANGO_FUNCTION, attempt["job"]["payload"]))["output"]
    assert output == {"attempt": 1, "id": result.id, "status": "RUNNING", "word": "x", "args": ["x"]}
    monkeypatch.setenv("JOB_ATTEMPT", "2")
    assert json.loads(run_callable(DJANGO_FUNCTION, attempt["job"]["payload"]))["output"] == output


def test_a_task_can_ask_for_a_process_of_its_own(tasks, worker):
    tasks.add.enqueue(1)
    replace(tasks.add, options={"isolation": "process"}).enqueue(2)
    claimed = worker(tags=TAGS).claim(limit=2)
    assert [attempt["job"]["isolation"] for attempt in claimed] == [None, "process"]


def test_a_task_that_runs_is_running(tasks, worker):
    result = tasks.add.enqueue(1)
    worker(tags=TAGS).hold()
    result.refresh()
    assert (result.status, result.attempts, result.is_finished) == (TaskResultStatus.RUNNING, 1, False)


def test_its_result_is_found_by_its_id_by_the_task_and_by_the_backend(tasks, db):
    result = tasks.add.enqueue(1)
    assert tasks.add.get_result(result.id).id == result.id
    found = task_backends["default"].get_result(result.id)
    assert (found.task, found.args, found.kwargs, found.backend) == (tasks.add, [1], {}, "default")


@pytest.mark.parametrize("unknown", ["4225c76c-fb72-4f55-b780-4c8ed679ce30", "no id", ""])
def test_a_missing_result_raises_that_it_does_not_exist(tasks, db, unknown):
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(unknown)


def test_a_job_that_is_no_task_and_a_task_of_another_backend_are_no_results(tasks, db, submit):
    other = tasks.add.using(backend="patient").enqueue(1)
    for id in (submit()["id"], other.id):
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(id)
    assert task_backends["patient"].get_result(other.id).task.backend == "patient"


def test_a_result_of_another_task_does_not_match(tasks, db):
    with pytest.raises(Exception, match="does not match") as mismatch:
        tasks.send.get_result(tasks.add.enqueue(1).id)
    assert type(mismatch.value).__name__ == "TaskResultMismatch"


def test_asynchronous_code_enqueues_finds_and_refreshes(tasks, work):
    result = async_to_sync(tasks.add.aenqueue)(1, b=1)
    assert async_to_sync(tasks.add.aget_result)(result.id).id == result.id
    work()
    async_to_sync(result.arefresh)()
    assert result.return_value == 2


def test_a_coroutine_is_a_task(tasks, work):
    result = tasks.add_later.enqueue(2, 3)
    work()
    result.refresh()
    assert result.return_value == 5


def test_an_enqueue_in_a_transaction_that_is_rolled_back_vanishes_with_it(tasks, db):
    with transaction.atomic():
        gone = tasks.add.enqueue(1)
        transaction.set_rollback(True)
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(gone.id)
    assert not WorkerJob.objects.exists()


def test_no_worker_sees_it_before_the_transaction_commits(tasks, committed, threads):
    one = committed(tags=TAGS)
    with transaction.atomic():
        result = tasks.add.enqueue(1)
        assert threads(one.claim).result() == []
    (claimed,) = one.claim()
    assert str(claimed["job"]["id"]) == result.id


def test_higher_priorities_run_first(tasks, work):
    for number, priority in enumerate([0, -100, 100, 5]):
        tasks.add.using(priority=priority).enqueue(number)
    assert work() == [[2], [3], [0], [1]]


@pytest.mark.parametrize("priority", [-101, 101, 0.5])
def test_other_priorities_are_refused(tasks, db, priority):
    with pytest.raises(InvalidTask, match="priority"):
        tasks.add.using(priority=priority)


def test_a_task_runs_on_a_worker_of_its_queue_alone(tasks, worker):
    policy = ActionPolicy.parse_options(None, django={})
    default, mail = (worker(tags=policy.list_tags([f"queue:{queue}"])) for queue in ("default", "mail"))
    result = tasks.send.enqueue("a@example.com")
    assert result.task.queue_name == "mail"
    assert default.claim() == []
    (claimed,) = mail.claim()
    assert str(claimed["job"]["id"]) == result.id and claimed["job"]["payload"]["queue"] == "mail"
    assert tasks.send.get_result(result.id).task.queue_name == "mail"


def test_a_queue_that_the_backend_does_not_have_is_refused(tasks, db):
    with pytest.raises(InvalidTask, match="Queue"):
        tasks.add.using(queue_name="nowhere")


def test_a_task_whose_queue_has_no_worker_waits_for_one(tasks, db):
    result = tasks.add.enqueue(1)
    assert WorkerJob.objects.get(pk=result.id).unmatched == "wait"


def test_it_runs_no_sooner_than_run_after(tasks, work, clock):
    later = timezone.now() + timedelta(hours=1)
    result = tasks.add.using(run_after=later).enqueue(1)
    assert tasks.add.get_result(result.id).task.run_after == later
    assert work() == []
    clock.step(2 * 3600)  # the clock stood still before this test began
    work.worker.beat()
    assert work() == [[1]]


def test_a_time_without_a_zone_is_refused(tasks, db):
    with pytest.raises(InvalidTask, match="aware"):
        tasks.add.using(run_after=timezone.now().replace(tzinfo=None))


def test_an_exception_is_an_error_with_its_class_and_traceback(tasks, work):
    result = tasks.fail.enqueue("none left")
    work()
    result.refresh()
    (error,) = result.errors
    assert (result.status, result.is_finished) == (TaskResultStatus.FAILED, True)
    assert error.exception_class_path == "tests.support.project_tasks.OutOfStamps"
    assert error.exception_class is tasks.OutOfStamps
    assert "none left" in error.traceback and "in fail\n" in error.traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_so_is_one_of_a_class_in_a_class(tasks, work):
    from django.contrib.auth import get_user_model

    result = tasks.fail_with_django.enqueue()
    work()
    result.refresh()
    assert result.errors[0].exception_class_path == "django.contrib.auth.models.User.DoesNotExist"
    assert get_user_model().DoesNotExist.__qualname__ == "User.DoesNotExist"


def test_a_task_is_retried_by_the_backends_settings_and_each_try_has_its_error(tasks, work):
    result = tasks.fail.using(backend="patient").enqueue("no")
    assert WorkerJob.objects.get(pk=result.id).timeout_seconds == 60
    assert len(work()) == 2
    result.refresh()
    assert (result.attempts, len(result.errors), result.status) == (2, 2, TaskResultStatus.FAILED)


def test_a_task_that_is_to_be_tried_again_is_ready(tasks, worker, work):
    result = tasks.fail.using(backend="patient").enqueue("no")
    attempt = work.worker.hold()
    error = {"code": "OutOfStamps", "message": "no", "exception": "tests.support.project_tasks.OutOfStamps"}
    work.worker.report({"attempt": attempt["id"], "event": "FAILED", "error": error})
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.READY, 1, 1)


def test_the_options_of_a_task_are_put_before_those_of_its_backend(tasks, db):

    stubborn = replace(tasks.add, backend="patient", options={"max_retries": 5, "tags": ["big"]})
    job = WorkerJob.objects.get(pk=stubborn.enqueue(1).id)
    assert (job.max_retries, job.timeout_seconds, job.tags) == (5, 60, ["big", "queue:default"])
    with pytest.raises(InvalidTask, match="max_retry"):
        replace(tasks.add, options={"max_retry": 5})


def test_it_is_given_its_context_with_the_attempt(tasks, work):
    result = tasks.describe.enqueue("hello")
    work()
    result.refresh()
    said = {"attempt": 1, "id": result.id, "status": "RUNNING", "word": "hello", "args": ["hello"]}
    assert result.return_value == said


def test_a_task_of_a_lost_worker_runs_again_and_shows_that(tasks, work, worker, clock):
    first = worker(tags=TAGS, name="worker-9")
    result = tasks.describe.enqueue("again")
    attempt = first.hold()
    interventions.resubmit_job(attempt["job"]["id"], "operator:me")
    first.obey()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 1)
    work.worker.beat()
    assert len(work()) == 1
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.SUCCESSFUL, 2)
    assert result.worker_ids == [first.id, work.worker.id] and result.return_value["attempt"] == 2
    assert [error.exception_class for error in result.errors] == [django_tasks.WorkerLost]
    assert "RESUBMITTED" in result.errors[0].traceback


def test_a_cancelled_task_has_failed_with_the_reason(tasks, db):
    result = tasks.add.enqueue(1)
    interventions.cancel_job(result.id, "operator:me")
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [error.exception_class for error in result.errors] == [django_tasks.TaskFailed]
    assert "CANCELLED" in result.errors[0].traceback


@pytest.mark.parametrize(("what", "value"), [("tuple", [1, 2]), ("set", None), ("large", None)])
def test_a_result_is_json_or_the_task_has_failed(tasks, work, what, value):
    result = tasks.give_back.enqueue(what)
    work()
    result.refresh()
    assert (result.status == TaskResultStatus.SUCCESSFUL) == (value is not None)
    if value is None:
        assert len(result.errors) == 1 and result.errors[0].exception_class in (TypeError, django_tasks.TaskFailed)
    else:
        assert result.return_value == value


def test_arguments_must_be_json_and_are_those_that_the_task_gets(tasks, db):
    with pytest.raises(TypeError):
        tasks.add.enqueue(object())
    assert tasks.add.enqueue((1, 2)).args == [[1, 2]]
    with pytest.raises(ValidationError):
        tasks.add.enqueue("x" * 2_000_000)
    assert WorkerJob.objects.count() == 1


def test_signals_are_sent_by_who_enqueues_and_by_who_runs(tasks, work):
    heard = []
    signals = {"enqueued": django_tasks.task_enqueued}
    signals |= {name: getattr(django_task_runner, f"task_{name}") for name in ("started", "finished")}
    receivers = []
    for name, signal in signals.items():

        def receive(sender, task_result, name=name, **_):
            heard.append((name, sender, task_result.id, task_result.status))

        receivers.append(receive)
        signal.connect(receive)
    good, bad = tasks.add.enqueue(1), tasks.fail.enqueue("no")
    work()
    by, (ready, running, done, failed) = django_tasks.WorkerJobBackend, ("READY", "RUNNING", "SUCCESSFUL", "FAILED")
    assert heard[:2] == [("enqueued", by, good.id, ready), ("enqueued", by, bad.id, ready)]
    assert heard[2:4] == [("started", by, good.id, running), ("finished", by, good.id, done)]
    assert heard[4:] == [("started", by, bad.id, running), ("finished", by, bad.id, failed)]


def test_only_a_function_of_a_module_is_a_task(tasks, db):
    with pytest.raises(InvalidTask, match="module level"):
        tasks.task(lambda: None)


def test_a_client_of_the_api_can_have_no_other_function_run(tasks, work, submit):
    payload = {"task": "tests.support.project_tasks.not_a_task", "args": [], "kwargs": {}, "backend": "default"}
    job = submit(action={"type": "handler", "name": "django-task"}, payload={**payload, "queue": "default"})
    work()
    seen = WorkerJob.objects.get(pk=job["id"])
    assert (seen.state, seen.error["code"]) == ("FAILED", SuspiciousOperation.__name__)


def test_an_error_has_its_class(tasks, work, api):
    result = tasks.fail.enqueue("no")
    work()
    error = api("viewer").get(f"/jobs/{result.id}").json()["error"]
    assert (error["code"], error["exception"]) == ("OutOfStamps", "tests.support.project_tasks.OutOfStamps")
    json.dumps(error)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"OPTIONS": {"max_retry": 3}}, "max_retry"),
        ({"OPTIONS": {"max_retries": -1}}, "max_retries"),
        ({"QUEUES": ["x" * 100]}, "tags"),
    ],
)
def test_a_check_explains_what_is_wrong_with_the_setting(settings, changed, said):
    settings.TASKS = {"default": {"BACKEND": BACKEND, **changed}}
    (problem,) = task_backends["default"].check()
    assert said in problem.msg and problem.id in ("jobs.E007", "jobs.E008")


def test_a_setting_that_is_right_passes_the_checks(tasks):
    assert [message for alias in TASKS for message in task_backends[alias].check()] == []
    assert [message for message in run_checks() if "TASKS" in message.msg] == []


def test_an_enqueue_is_one_query_and_the_options_of_a_task_are_validated_once(
    tasks, db, django_assert_num_queries, monkeypatch
):
    tasks.add.enqueue(1)
    monkeypatch.setattr(django_tasks.WorkerJobBackend, "validate_task", None)
    with django_assert_num_queries(1):
        tasks.add.enqueue(2)
    assert WorkerJob.objects.count() == 2


def test_many_tasks_are_enqueued_in_one_statement_or_not_at_all(tasks, work):
    backend = task_backends["default"]
    results = backend.enqueue_many([(tasks.add, [number], {"b": 1}) for number in range(50)])
    assert [result.args for result in results] == [[number] for number in range(50)]
    work()
    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == list(range(1, 51))
    with pytest.raises(ValidationError):
        backend.enqueue_many([(tasks.add, [1], {}), (tasks.add, ["x" * 2**20], {})])
    assert WorkerJob.objects.count() == 50


EVERY_OPTION = {
    **{"max_retries": 3, "retry_delay_seconds": 1.5, "retry_backoff": "exponential", "retry_on": ["exit:1", "timeout"]},
    **{"timeout_seconds": 60, "on_worker_lost": "FAIL", "isolation": "process", "worker_slots": 2},
    "tags": ['a "b"', "c\\d", "NULL", "{}"],
    "limits": {"licence": 2},
}


def test_a_unique_task_is_not_stored_again_while_it_waits(tasks, db):
    task = replace(tasks.send, options={"unique": {"key": "report"}})
    assert task.enqueue("a").id == task.enqueue("b").id
    assert WorkerJob.objects.count() == 1


@pytest.mark.parametrize("options", [{}, EVERY_OPTION], ids=["default options", "every option"])
def test_a_job_of_a_task_is_the_same_on_each_way(tasks, db, settings, monkeypatch, options):
    task = replace(tasks.send, priority=7, options=options)
    tokens.get_project_token()
    with monkeypatch.context() as alone:
        alone.setattr(enqueueing, "store_rows", None)
        task.enqueue("a")
    task.get_backend().enqueue_many([(task, ["a"], {})] * 2)
    settings.JOBS = {"STORED_BYTES_LIMIT": 10**9}
    task.enqueue("a")
    different = {"id", "created_at", "available_at", "pending_observed", "fingerprint", "payload"}
    first, *others = WorkerJob.objects.order_by("created_at").values()
    assert len(others) == 3
    for other in others:
        assert {n: v for n, v in first.items() if n not in different} == {
            n: v for n, v in other.items() if n not in different
        }
        assert first["payload"] | {"enqueued_at": ""} == other["payload"] | {"enqueued_at": ""}
