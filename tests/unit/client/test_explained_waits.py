"""A person who waits for a job at the command line sees why it has not begun."""

import threading

import pytest

from controlplane.client import placement_views
from controlplane.client.__main__ import main
from controlplane.client.placement_views import describe_wait
from controlplane.client.views import parked_words
from tests.support.scripted import Say, problem

ID = "0190b5a5-0000-7000-8000-000000000001"


def ruled_out(name, filter, detail):
    return {"server": {"id": ID, "name": name}, "filter": filter, "detail": detail}


LACKS = ruled_out("worker-1", "tags", "it lacks gpux")
FULL = ruled_out("worker-3", "capacity", "4 of 4 in use")
OTHER = ruled_out("web", "type", "it is no worker")
PLACEMENT = {"eligible": [], "ruled_out": [LACKS, OTHER], "waiting_for": None}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "The job waits. The only worker, worker-1, may not take it: it lacks gpux."),
        (
            {"ruled_out": [LACKS, LACKS, ruled_out("worker-2", "state", "it is DISCONNECTED"), OTHER]},
            "The job waits, because none of 3 workers may take it. 2 of them: it lacks gpux.",
        ),
        ({"ruled_out": [OTHER]}, "The job waits because no worker is running."),
        ({"ruled_out": [LACKS, FULL, FULL]}, "The job waits for a free slot. Workers that may take it then: 2."),
        ({"eligible": [{}, {}]}, "The job waits for its turn. Workers that may take it: 2."),
        ({"waiting_for": {"what": "limit", "limit": "api"}}, "The job waits for a slot of api."),
    ],
    ids=["one worker", "several workers", "no worker", "full", "eligible", "limit"],
)
def test_the_reason_is_one_sentence(given, sentence):
    assert describe_wait(PLACEMENT | given) == sentence


def test_a_list_names_what_parks_a_job():
    assert parked_words({"parked_by": {"hold": ID}}) == ["on hold"]
    assert parked_words({"parked_by": {"limit": "api"}}) == ["limited by api"]
    assert parked_words({"parked_by": None}) == []


@pytest.fixture
def waiting(plane, monkeypatch):
    """Make a job whose calls are answered only when its placement was asked for."""
    asked = threading.Event()

    def placement(call):
        asked.set()
        return Say(200, PLACEMENT)

    def logs(call):
        assert asked.wait(30)
        return Say(200, {"items": [{"line": "hi"}], "next": None, "last": "1", "complete": True})

    def wait(call):
        assert asked.wait(30)
        return Say(200, {"items": [{"id": ID, "state": "COMPLETED", "left_out": [], "error": None}], "unknown": []})

    plane.answers["POST", "/jobs"] = [Say(201, {"id": ID})]
    plane.answers["GET", f"/jobs/{ID}/placement"] = placement
    plane.answers["GET", f"/jobs/{ID}/logs"] = logs
    plane.answers["GET", "/jobs/wait"] = wait
    monkeypatch.setattr(placement_views, "EXPLAINED_AFTER", 0.01)
    monkeypatch.setenv("CONTROLPLANE_URL", plane.url)
    monkeypatch.setenv("CONTROLPLANE_TOKEN", "secret")


@pytest.mark.parametrize(
    "words", [["logs", "-f", ID], ["submit", "--follow", "true"], ["submit", "--wait", "true"], ["wait", ID]]
)
def test_it_is_printed_once_while_the_job_waits(waiting, capsys, words):
    main(words)
    printed = capsys.readouterr().err
    assert printed == f"{describe_wait(PLACEMENT)} More: controlplane placement {ID}\n"


def test_nothing_is_printed_about_a_job_that_has_begun(plane, waiting, capsys):
    asked = plane.answers["GET", f"/jobs/{ID}/placement"]
    plane.answers["GET", f"/jobs/{ID}/placement"] = lambda call: asked(call) and problem(409, "not_waiting")
    main(["logs", "-f", ID])
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("hi\n", "")


def test_servers_of_other_types_are_only_counted(plane, waiting, capsys):
    main(["placement", ID])
    assert capsys.readouterr().out.splitlines()[1:] == ["worker-1  tags    it lacks gpux", "Servers of other types: 1"]
