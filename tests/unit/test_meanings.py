"""Every state in the tables has a line that explains it, and so has each group of states."""

import ast
import inspect
from enum import StrEnum

import pytest

from jobs import states as jobs
from liveness import states as liveness

MODULES = (liveness, jobs)
ENUMS = [
    member
    for module in MODULES
    for member in vars(module).values()
    if isinstance(member, type) and issubclass(member, StrEnum) and member.__module__ == module.__name__
]
STATES = [liveness.ServerState, jobs.JobState, jobs.AttemptState, jobs.ExecutionState]


def test_every_word_has_a_meaning():
    words = [word for enum in ENUMS for word in enum]
    assert [repr(word) for word in words if len(word.meaning.split()) <= 2 or word.meaning == word.name] == []


def test_there_are_32_states_and_no_two_of_a_kind_have_one_line():
    assert sum(map(len, STATES)) == 32
    for enum in STATES:
        assert len({state.meaning for state in enum}) == len(enum)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_group_of_states_is_followed_by_its_line(module):
    body = ast.parse(inspect.getsource(module)).body
    groups = {}
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if isinstance(getattr(module, name), set):
                is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                groups[name] = after.value.value if is_text else None
    assert groups
    assert [name for name, line in groups.items() if not line] == []
