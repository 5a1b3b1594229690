"""The README's example of the client works."""

import re
import shlex
import uuid

from controlplane.client.parser import build_parser
from tests.support.scripted import Say
from tests.support.standin import ROOT

PAGE = (ROOT / "docs/how-to/submit-a-job.md").read_text()


def test_the_example_of_the_readme_runs(plane, tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(from controlplane\.client import Client\n.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.token").write_text("secret\n")
    job = {"id": str(uuid.uuid4()), "state": "COMPLETED", "finished_at": "x", "output": {"stdout": "hello"}}
    plane.answers["POST", "/jobs"] = [Say(201, job)]
    plane.answers["GET", f"/jobs/{job['id']}"] = [Say(200, job)]
    exec(example.replace("http://127.0.0.1:8000", plane.url))  # noqa: S102
    assert capsys.readouterr().out == "COMPLETED hello\n"
    assert plane.calls[0].headers["Authorization"] == "Bearer secret"


def test_the_commands_of_the_readme_are_understood():
    (block,) = re.findall(r"```sh\n(export CONTROLPLANE_URL=.*?)```", PAGE, re.DOTALL)
    lines = [line.removeprefix("controlplane ") for line in block.splitlines() if line.startswith("controlplane ")]
    assert len(lines) >= 4
    for line in lines:
        assert build_parser("controlplane").parse_args(shlex.split(line, comments=True)).command
    assert "--role operator" in block, "the token that the block exports may do all of it"
