"""A secret on its way, on real processes: only the code of the job and its worker ever have it."""

import pytest

from tests.support.processes import eventually, fleet

pytestmark = pytest.mark.acceptance

SECRET = "hunter2-of-the-database"
LEAK = 'cat > got; echo "it is $PASSWORD"; echo "oops $PASSWORD" >&2; [ "$JOB_STEP" ] || exit 3'
ENDED = ("COMPLETED", "FAILED")
TABLES = "select format('%I.%I', schemaname, tablename) from pg_tables where tablename ~ '^(jobs|liveness|django)_'"


def test_only_the_code_of_a_job_and_its_worker_have_its_secret(tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "db-password").write_text(SECRET)
    (tmp_path / "work").mkdir()
    leak = {
        "type": "script", "command": LEAK, "cwd": str(tmp_path / "work"), "env": {"PASSWORD": {"secret": "db-password"}}
    }  # fmt: skip
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as running:
        url, client = running.web(), running.token("client")
        running.agent("worker", url, "--secrets-dir", str(tmp_path / "secrets"))

        def call(method, path, body=None):
            return running.call(method, f"{url}/api/v1{path}", client, body)

        def finish(job):
            return eventually(lambda: (read := call("GET", f"/jobs/{job}"))["state"] in ENDED and read)

        payload = {"password": {"secret": "db-password"}}
        failed = finish(call("POST", "/jobs", {"action": leak, "payload": payload})["id"])
        run = call("POST", "/executions", {"name": "n", "steps": [{"key": "a", "action": leak, "payload": payload}]})
        completed = finish(call("GET", f"/executions/{run['id']}")["steps"][0]["job"])
        missing = {"type": "script", "command": "true", "env": {"X": {"secret": "not-there"}}}
        without = finish(call("POST", "/jobs", {"action": missing})["id"])

        assert (tmp_path / "work" / "got").read_text() == f'{{"password": "{SECRET}"}}'
        assert failed["error"]["traceback"] == "oops ***\n" and failed["payload"] == payload
        assert completed["output"]["stdout"] == "it is ***\n"
        assert without["error"]["code"] == "SECRET_UNAVAILABLE"
        assert without["error"]["message"] == "this worker has no secret not-there"
        lines = [item["line"] for item in call("GET", f"/jobs/{failed['id']}/logs")["items"]]
        assert sorted(lines) == ["it is ***", "oops ***"]
        with running.connected() as database:
            tables = [table for (table,) in database.execute(TABLES).fetchall()]
            holding = [
                table
                for table in tables
                if database.execute(f"select from {table} t where t::text like %s", [f"%{SECRET}%"]).rowcount
            ]
        assert "public.jobs_workerjob" in tables and holding == []
        assert SECRET not in running.logs()
