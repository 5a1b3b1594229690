import subprocess
import sys

from tests.support.standin import ROOT

FORBIDDEN = ("django", "rest_framework", "celery", "psycopg")


def test_the_agents_import_no_django_drf_celery_or_psycopg():
    code = (
        "import sys, controlplane.agent.__main__; from controlplane.agent.processes import callable_child, reaper;"
        f"print([name for name in sys.modules if name.partition('.')[0] in {FORBIDDEN}])"
    )
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"
