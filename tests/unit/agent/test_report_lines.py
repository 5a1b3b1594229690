"""Reports in lines of output: what is one, and that all else is handed on as it came."""

from __future__ import annotations

import io

import pytest

from controlplane.agent import checkpoint, context, progress
from controlplane.agent.from_code import report_lines
from controlplane.agent.from_code.report_lines import ReportLines


@pytest.fixture
def files(tmp_path):
    return {"JOB_PROGRESS": tmp_path / "progress", "JOB_CHECKPOINT": tmp_path / "checkpoint"}


def hand_on(files, *chunks):
    """Return the output without the reports, which go into the files."""
    output = io.BytesIO()
    lines = ReportLines(output, files)
    for chunk in chunks:
        lines.write_chunk(chunk)
    lines.close()
    return output.getvalue()


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_reports_are_taken_out_however_the_output_arrives_and_the_last_counts(files, size):
    text = b"one\n::progress 0.1\n:: two\n::progress 0.4 copying\n::checkpoint 17\n three ::checkpoint 1\nfour"
    assert hand_on(files, *(text[at : at + size] for at in range(0, len(text), size))) == (
        b"one\n:: two\n three ::checkpoint 1\nfour"
    )
    assert files["JOB_PROGRESS"].read_bytes() == b"0.4 copying\n"
    assert files["JOB_CHECKPOINT"].read_bytes() == b"17\n"


def test_output_does_not_wait_for_the_end_of_its_line(files):
    output = io.BytesIO()
    lines = ReportLines(output, files)
    lines.write_chunk(b"50 %")
    assert output.getvalue() == b"50 %"
    lines.write_chunk(b"\r::checkpoint 1\n")
    assert output.getvalue() == b"50 %\r::checkpoint 1\n" and not files["JOB_CHECKPOINT"].exists()


def test_half_a_report_is_none_for_the_connection_may_have_ended_in_the_middle_of_it(files):
    assert hand_on(files, b"::checkpoint 17") == b"::checkpoint 17"
    assert not files["JOB_CHECKPOINT"].exists()


def test_a_line_that_never_ends_is_not_held_for_ever(files, monkeypatch):
    monkeypatch.setattr(report_lines, "HELD_LIMIT", 20)
    assert hand_on(files, b"::checkpoint [", b"1," * 10, b"1]\n", b"::checkpoint 2\n") == (
        b"::checkpoint [" + b"1," * 10 + b"1]\n"
    )
    assert files["JOB_CHECKPOINT"].read_bytes() == b"2\n"


def test_the_functions_of_the_library_write_lines_where_there_are_no_files(monkeypatch, capsys, files):
    for variable in files:
        monkeypatch.delenv(variable, raising=False)
    for variable, value in report_lines.describe_lines({"row": 7}).items():
        monkeypatch.setenv(variable, value)
    assert context.checkpoint == {"row": 7}
    progress(0.5, "two\nlines")
    checkpoint({"row": 8})
    assert context.checkpoint == {"row": 8}
    assert hand_on(files, capsys.readouterr().out.encode()) == b""
    assert files["JOB_PROGRESS"].read_text() == "0.5 two lines\n"
    assert files["JOB_CHECKPOINT"].read_text() == '{"row":8}\n'
