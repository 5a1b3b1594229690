from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.standin import Agent, ControlPlane


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    plane = ControlPlane()
    yield plane
    plane.close()


@pytest.fixture
def agent(plane: ControlPlane, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    started: list[Agent] = []

    def start(*arguments: str) -> Agent:
        started.append(Agent(plane, tmp_path, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()
        sys.stdout.write(one.log)
