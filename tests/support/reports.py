"""Reports of workers, and a job that a worker holds."""

import pytest


def build_report(attempt, event, **more):
    return {"attempt": attempt["id"], "event": event, **more}


def brief(results):
    return [(result["accepted"], result["replayed"], result["state"], result["code"]) for result in results]


@pytest.fixture
def held(worker, submit):
    """Return a job with its worker and attempt: `held(running=False)`; `seen()` is the job in the API."""

    class Held:
        def __init__(self, running=True, worker_says=None, **job):
            self.job = submit(**job)["id"]
            self.worker = worker(**(worker_says or {}))
            self.attempt = self.worker.hold(running=running)

        def report(self, event, **more):
            return brief(self.worker.report(build_report(self.attempt, event, **more)))[0]

        def read_job(self):
            return submit.client.get(f"/jobs/{self.job}").json()

    return Held
