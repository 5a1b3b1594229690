"""Queues: the jobs of each namespace and set of required tags, in the API, on the page and among the metrics."""

import re

import pytest
from django.test import Client

from controlplane.console.views import queues as page_of_queues
from jobs.selectors import queues
from liveness.services import tokens
from tests.integration.api.test_paging import pages
from tests.support.http import Caller

pytestmark = pytest.mark.django_db
LATER = "2090-01-01T00:00:00Z"
PAGE = "/admin/instance/queues/"


@pytest.fixture
def listed(api):
    """Return a function that lists the queues by their tags: `listed("?tag=gpu")`."""
    viewer = api("viewer")

    def listed(query=""):
        answer = viewer.get(f"/queues{query}")
        assert answer.status_code == 200, answer.json()
        return {" ".join(item["tags"]): item for item in answer.json()["items"]}

    return listed


def numbers(queue):
    return {name: queue[name] for name in ("waiting", "parked", "scheduled", "running", "workers")}


@pytest.fixture
def some(worker, submit, clock):
    """Make jobs that wait, run and are scheduled, in two queues."""
    one = worker(tags=["script"], max_concurrent=2)
    submit()
    submit()
    one.hold()
    one.claim(1)
    oldest = submit()
    clock.advance(1)
    submit()
    submit(available_at=LATER)
    submit(tags=["gpu"], unmatched="wait")
    return oldest


def test_a_queue_counts_its_jobs_and_the_workers_that_can_take_them(some, listed):
    found = listed()
    assert list(found) == ["gpu script", "script"]
    assert numbers(found["script"]) == {"waiting": 2, "parked": 0, "scheduled": 1, "running": 2, "workers": 1}
    assert numbers(found["gpu script"]) == {"waiting": 1, "parked": 0, "scheduled": 0, "running": 0, "workers": 0}
    assert (found["script"]["namespace"], found["script"]["oldest_at"]) == ("default", some["available_at"])


def test_a_queue_without_waiting_jobs_has_no_oldest(worker, submit, listed):
    submit()
    worker().hold()
    assert listed()["script"]["oldest_at"] is None


def test_a_queue_without_jobs_is_not_listed(worker, submit, listed):
    submit()
    one = worker()
    one.complete(one.hold())
    assert listed() == {}


def test_only_workers_that_may_get_work_count(worker, submit, listed, operator, clock):
    submit()
    worker(name="silent")
    worker(name="other", tags=["gpu"])
    clock.advance(20)
    fresh, cordoned = worker(name="fresh"), worker(name="cordoned")
    operator("cordon", cordoned, note="n")
    assert listed()["script"]["workers"] == 1
    assert fresh.hold() and listed() != {}


def test_a_list_of_queues_can_be_limited_to_a_tag(some, listed):
    assert list(listed("?tag=gpu")) == ["gpu script"]
    assert listed("?tag=none") == {}


def test_queues_come_in_pages_and_none_twice_or_never(api, submit):
    for tags in (["a"], ["a", "b"], ["b"], ["b,c", "ü"], []):
        submit(tags=tags, unmatched="wait")
    found = pages(api("viewer"), "/queues", limit=2)
    assert [len(page) for page in found] == [2, 2, 1]
    assert [queue["tags"] for page in found for queue in page] == [
        ["a", "b", "script"], ["a", "script"], ["b", "script"], ["b,c", "script", "ü"], ["script"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "query", ["limit=501", "cursor=x", "cursor=7b7d", "cursor=5b5d", "cursor=5b2261222c5b315d5d", "other=1",
              "cursor=5b22615c7530303030222c5b5d5d"]
)  # fmt: skip
def test_an_invalid_page_of_queues_is_a_400(api, query):
    answer = api("viewer").get(f"/queues?{query}")
    assert answer.status_code == 400 and query.partition("=")[0] in answer.json()["errors"]


def test_a_caller_sees_the_queues_of_its_namespaces(api, submit):
    submit()
    red = Caller(tokens.create_token("red", "client", namespace="red"))
    assert red.post("/jobs", {"action": {"type": "script", "command": "true"}}).status_code == 201
    viewer = Caller(tokens.create_token("a viewer of red", "viewer", namespace="red"))
    assert [item["namespace"] for item in viewer.get("/queues").json()["items"]] == ["red"]
    assert [item["namespace"] for item in api("viewer").get("/queues").json()["items"]] == ["default"]
    assert api("viewer").get("/queues?namespace=red").json()["code"] == "wrong_namespace"


def test_an_execution_has_only_the_queues_of_its_steps(api, listed):
    step = {"key": "s", "action": {"type": "script", "command": "true"}}
    child = {"key": "c", "action": {"type": "execution", "name": "inner", "steps": [step]}}
    answer = api("client").post("/executions", {"name": "x", "steps": [child]})
    assert answer.status_code == 201, answer.json()
    assert list(listed()) == ["script"]


def test_the_largest_queues_have_series_and_the_rest_is_other(api, submit, monkeypatch):
    monkeypatch.setattr(queues, "QUEUES_NAMED", 1)
    submit()
    submit()
    submit(tags=["gpu"], unmatched="wait")
    submit(tags=["tpu"], unmatched="wait")
    text = Client(headers={"Authorization": f"Bearer {api('viewer').token}"}).get("/metrics").content.decode()
    read = dict(re.findall(r"^controlplane_queue_jobs\{(.*)\} (.*)$", text, re.MULTILINE))
    assert read == {
        'namespace="default",state="waiting",tags="script"': "2.0",
        'namespace="default",state="parked",tags="script"': "0.0",
        'namespace="default",state="running",tags="script"': "0.0",
        'namespace="other",state="waiting",tags="other"': "2.0",
        'namespace="other",state="parked",tags="other"': "0.0",
        'namespace="other",state="running",tags="other"': "0.0",
    }


def test_the_page_shows_each_queue_with_a_link_to_its_jobs(reader, some):
    page = reader.get(PAGE).content.decode()
    for address in ("state=PENDING", "queue=gpu%2Cscript"):
        assert address in page
    jobs = reader.get("/admin/instance/jobs/?state=PENDING&queue=gpu,script").content.decode()
    assert jobs.count('id="job-') == 1


def test_the_page_without_jobs_explains_queues(reader):
    page = reader.get(PAGE).content.decode()
    assert "No job waits or runs" in page and "controlplane submit --tag gpu" in page
    assert "No queue matches: tag x" in reader.get(f"{PAGE}?tag=x").content.decode()


def test_the_page_has_a_link_to_further_queues(reader, submit, monkeypatch):
    monkeypatch.setattr(page_of_queues, "QUEUES_A_PAGE", 2)
    for tag in ("a", "b", "c"):
        submit(tags=[tag], unmatched="wait")
    first = reader.get(PAGE).content.decode()
    further = re.search(r'href="(\?before=\w+)">More', first)[1]
    second = reader.get(f"{PAGE}{further}").content.decode()
    assert ">b<" in first and ">c<" not in first
    assert ">c<" in second and ">b<" not in second
    assert reader.get(f"{PAGE}?before=nonsense").status_code == 200
