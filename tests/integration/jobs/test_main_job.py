"""The main job, one step at a time: a worker is lost, its job finishes elsewhere."""

from jobs.services.liveness_check import check_liveness


def states(job):
    return [entry["state"] for entry in job["timeline"] if entry["attempt"] is not None]


def test_a_job_of_a_lost_worker_completes_on_another_and_its_timeline_shows_how(worker, submit, clock):
    job = submit()
    lost, heir = worker(name="lost"), worker(name="heir")
    attempt = lost.hold()

    clock.advance(46)
    heir.beat()
    check_liveness()
    assert submit.client.get(f"/jobs/{job['id']}").json()["state"] == "RUNNING"
    clock.advance(301)
    heir.beat()
    check_liveness()

    second = heir.hold()
    assert second["number"] == 2
    assert heir.complete(second, {"answer": 42})["accepted"]
    late = lost.complete(attempt, {"answer": 41})
    assert late == {
        "attempt": attempt["id"],
        "accepted": False,
        "replayed": False,
        "state": "RESUBMITTED",
        "code": "attempt_superseded",
    }

    job_now = submit.client.get(f"/jobs/{job['id']}").json()
    assert states(job_now) == ["CLAIMED", "RUNNING", "RESUBMITTED", "CLAIMED", "RUNNING", "COMPLETED"]
    assert (job_now["state"], job_now["output"], job_now["resubmissions"]) == ("COMPLETED", {"answer": 42}, 1)
    assert [(late["event"], late["reason"]) for late in job_now["late_reports"]] == [
        ("COMPLETED", "attempt_superseded")
    ]
