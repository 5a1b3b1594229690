"""Log lines cannot be forged, and contain no escape codes."""

import io
import logging

import pytest
import structlog
from django.conf import settings

from controlplane.agent import clean_text
from controlplane.agent.__main__ import main
from controlplane.agent.celery.heart.logs import configure_logging
from controlplane.standalone.output import ProcessOutput

FORGED = "x\n2026-01-01T00:00:00Z [warning  ] Server one disconnected"
CODES = ["\x1b[2J", "\r", "\x7f", "\x9b31m", "\u2028", "\u202e", "\0"]


@pytest.fixture
def log_of_control_plane():
    """Log with the control plane's formatter, and return the lines of an event."""
    options = {key: value for key, value in settings.LOGGING["formatters"]["lines"].items() if key != "()"}
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(**options))
    logging.getLogger().addHandler(handler)

    def logged(log):
        log(structlog.get_logger("some"), logging.getLogger("foreign"))
        return stream.getvalue().removesuffix("\n").split("\n")

    yield logged
    logging.getLogger().removeHandler(handler)


@pytest.fixture
def log_of_agent(monkeypatch, capsys):
    """Log as an agent does, and return the lines of an event."""
    before = structlog.get_config()

    def logged(log):
        assert main(["--url", "nowhere", "--token", "x"]) == 2  # this sets up the log
        capsys.readouterr()
        log(structlog.get_logger(), None)
        return capsys.readouterr().err.removesuffix("\n").split("\n")

    yield logged
    structlog.configure(**before)


@pytest.fixture
def log_of_heart(capsys):
    """Log as the process beside a Celery worker does, and return the lines of an event."""
    before = structlog.get_config()

    def logged(log):
        configure_logging(logging.INFO)
        log(structlog.get_logger(), None)
        return capsys.readouterr().err.removesuffix("\n").split("\n")

    yield logged
    structlog.configure(**before)


@pytest.fixture(params=["log_of_control_plane", "log_of_agent", "log_of_heart"])
def logged(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("evil", [FORGED, *CODES])
def test_an_event_is_one_line_whatever_its_names_and_values_are(logged, evil):
    [line] = logged(lambda log, _: log.warning(f"Server {evil} refused", reason=evil, tags=[evil], **{evil: 1}))
    assert line.isprintable()
    assert "Server x\\n2026" in line or evil is not FORGED


@pytest.mark.parametrize("evil", [FORGED, *CODES])
def test_what_other_libraries_log_is_one_line_too(log_of_control_plane, evil):
    [line] = log_of_control_plane(lambda _, foreign: foreign.warning("Not found: %s", evil))
    assert line.isprintable()


@pytest.mark.parametrize("evil", [FORGED, *CODES])
def test_no_line_of_a_traceback_looks_like_an_event(logged, evil):
    def fail(log, _):
        try:
            raise ValueError(evil)
        except ValueError:
            log.exception("It failed")

    first, *others = logged(fail)
    assert first.isprintable() and "It failed" in first
    assert any("ValueError" in line for line in others)
    assert all(line.startswith("    ") and line.isprintable() for line in others)


def test_standalone_prints_no_control_characters_of_its_parts_but_tabs(capsys):
    ProcessOutput(["worker-1"], unread=lambda: None).show("worker-1", "a\tb" + "".join(set(CODES) - {"\r", "\u2028"}))
    [line] = capsys.readouterr().out.removesuffix("\n").split("\n")
    assert line.replace("\t", "").isprintable() and "a\tb" in line and r"\x1b[2J" in line


@pytest.mark.parametrize("text", ["", "worker-1", "é \U0001f600 العربية", "a\\nb"])
def test_what_people_write_is_clean_and_stays_as_it_is(text):
    assert clean_text.is_clean(text)
    assert clean_text.escaped(text) == text
