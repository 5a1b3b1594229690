"""The Instance pages of executions and triggers."""

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection

from jobs.models import Execution
from liveness.models import ServerEvent
from tests.support.executions import SCRIPT, step
from tests.support.queries import CapturedQueries

pytestmark = pytest.mark.django_db

AT = "/admin/instance"


def text(answer, status=200):
    assert answer.status_code == status
    return answer.content.decode()


def test_an_execution_is_shown_with_its_graph_its_lanes_and_its_events(begin, do, staff):
    child = {"type": "execution", "name": "inner", "steps": [step("x")]}
    run = begin(
        step("load"), step("check", "load"), step("child", action=child), on_error=[{"key": "tell", "action": SCRIPT}]
    )
    do("load", fails=True)
    shown = text(staff(checks_csrf=False).get(f"{AT}/executions/{run.id}/"))
    for words in ("SKIPPED", "STEP_SKIPPED", "its execution", "tell (hook)", 'class="edge', "BAD"):
        assert words in shown
    assert f'href="{AT}/executions/{run.step("child")["child"]}/"' in shown


def test_the_page_shows_the_outputs_of_an_execution(begin, do, staff):
    outputs = {"rows": {"from": "$.steps.load.output.rows"}, "password": {"from": "$.steps.load.output.password"}}
    run = begin(step("load"), outputs=outputs)
    do("load", output={"rows": 4217, "password": "s3cr3t"})
    shown = text(staff(checks_csrf=False).get(f"{AT}/executions/{run.id}/"))
    assert "<h2>Outputs</h2>" in shown
    assert "4217" in shown and "s3cr3t" not in shown


def test_a_hostile_key_is_shown_as_text(begin, staff):
    run = begin(step("<script>alert(1)<b>"), name="<img src=x>")
    browser = staff(checks_csrf=False)
    for page in (f"{AT}/executions/{run.id}/", f"{AT}/executions/"):
        shown = text(browser.get(page))
        assert "<script>alert" not in shown
        assert "<img src=x>" not in shown


@pytest.mark.parametrize("steps", [3, 200])
def test_a_page_takes_eight_queries_at_most_however_many_steps_there_are(begin, do, staff, steps):
    run = begin(step("a"), *[step(f"s{n}", "a") for n in range(steps)])
    do("a")
    browser = staff(checks_csrf=False)
    for page in (f"executions/{run.id}/", "executions/", "triggers/"):
        with CapturedQueries(connection) as queries:
            text(browser.get(f"{AT}/{page}"))
        assert len(queries) <= 8


def test_cancelling_and_rerunning_an_execution_needs_permission_and_a_note(begin, staff):
    run = begin(step("a"))
    pick = f"?pick={run.id}"
    viewer = staff(checks_csrf=False)
    assert "Cancel…" not in text(viewer.get(f"{AT}/executions/{run.id}/"))
    assert viewer.post(f"{AT}/executions/cancel/{pick}", {"note": "no"}).status_code == 403
    User.objects.get().user_permissions.add(
        *Permission.objects.filter(codename__in=["cancel_execution", "rerun_execution"])
    )
    assert "Waiting steps end now" in text(viewer.get(f"{AT}/executions/cancel/{pick}"))
    done = viewer.post(f"{AT}/executions/cancel/{pick}", {"note": "wrong day", "seen": f"{run.id} RUNNING"})
    assert done.status_code == 302
    assert run.state == "CANCELLED"
    again = viewer.post(f"{AT}/executions/cancel/{pick}", {"note": "wrong day", "seen": f"{run.id} RUNNING"})
    assert again.status_code == 409
    event = ServerEvent.objects.get(action="cancel_execution")
    assert (event.actor, event.reason) == ("operator:ann", "wrong day")
    page = text(viewer.get(f"{AT}/executions/{run.id}/")).partition("Manual actions")[2]
    assert all(word in page for word in ("Cancel execution", "operator:ann", "wrong day"))
    page = text(viewer.get(f"{AT}/activity/"))
    assert f'<a href="{AT}/executions/{run.id}/">execution nightly</a>' in page
    done = viewer.post(f"{AT}/executions/rerun/{pick}", {"note": "right day", "seen": f"{run.id} CANCELLED"})
    new = Execution.objects.get(rerun_of=run.id)
    assert done["Location"] == f"{AT}/executions/{new.pk}/"


def test_executions_are_filtered_and_an_empty_list_explains_how_to_start_one(begin, do, staff):
    browser = staff(checks_csrf=False)
    assert "api/v1/executions" in text(browser.get(f"{AT}/executions/"))
    assert "No trigger yet" in text(browser.get(f"{AT}/triggers/"))
    begin(step("a"), name="morning")
    begin(step("b"), name="evening")
    do("a")
    shown = text(browser.get(f"{AT}/executions/?state=COMPLETED"))
    assert "morning" in shown
    assert "evening" not in shown
    assert "No execution matches" in text(browser.get(f"{AT}/executions/?q=third"))


def test_triggers_are_shown_with_the_outcomes_of_their_slots(api, staff):
    body = {"name": "hourly", "cron": "0 * * * *", "action": SCRIPT, "execution": {"name": "x", "steps": [step("a")]}}
    operator = api("operator")
    trigger = operator.post("/triggers", body).json()["id"]
    operator.post(f"/triggers/{trigger}/evaluate", {})
    shown = text(staff(checks_csrf=False).get(f"{AT}/triggers/"))
    assert "hourly" in shown
    assert "EVALUATING" in shown


def test_an_unknown_execution_or_trigger_gets_a_page_with_a_404(staff):
    assert "execution" in text(
        staff(checks_csrf=False).get(f"{AT}/executions/01a1fe5d-59c7-77d5-9069-25caf686f877/"), 404
    )
