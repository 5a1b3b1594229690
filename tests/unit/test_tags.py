import pytest

from jobs import tags
from jobs.api.serializers.actions import ACTIONS

EXPECTED = [
    ({"type": "script", "runner": "local"}, ["script"]),
    ({"type": "script", "runner": "docker"}, ["docker", "script"]),
    ({"type": "script", "runner": "pod"}, ["kubernetes", "script"]),
    ({"type": "docker"}, ["docker"]),
    ({"type": "pod"}, ["kubernetes"]),
    ({"type": "docker", "resources": {"gpus": 1}}, ["docker", "runtime:gpu"]),
    ({"type": "script", "runner": "docker", "resources": {"gpus": 1}}, ["docker", "runtime:gpu", "script"]),
    ({"type": "docker", "resources": {"memory": "1G"}}, ["docker"]),
    ({"type": "pod", "resources": {"gpus": 1}}, ["kubernetes"]),
    ({"type": "callable"}, ["python"]),
    ({"type": "handler", "name": "resize"}, ["handler:resize"]),
    ({"type": "celery", "task": "orders.charge", "queue": "letters"}, ["celery", "queue:letters"]),
]


@pytest.mark.parametrize(("action", "expected"), EXPECTED)
def test_an_action_asks_for_the_tags_of_its_type_and_runner(action, expected):
    assert tags.required_tags(action, []) == expected


def test_explicit_tags_are_asked_for_as_well_each_once():
    assert tags.required_tags({"type": "docker"}, ["gpu", "docker"]) == ["docker", "gpu"]


def test_every_action_that_may_be_submitted_has_its_tags():
    assert {action["type"] for action, _ in EXPECTED} == set(ACTIONS)
