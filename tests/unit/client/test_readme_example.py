"""What the README shows of the client is what it does."""

import re
import shlex
import uuid

from controlplane.client.parser import build_parser
from tests.support.scripted import Say
from tests.support.standin import ROOT

README = (ROOT / "README.md").read_text()


def test_the_example_of_the_readme_runs(plane, tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(from controlplane\.client import Client\n.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.token").write_text("secret\n")
    job = {"id": str(uuid.uuid4()), "state": "COMPLETED", "finished_at": "x", "output": {"stdout": "hello"}}
    plane.answers["POST", "/jobs"] = [Say(201, job)]
    plane.answers["GET", f"/jobs/{job['id']}"] = [Say(200, job)]
    exec(example.replace("http://127.0.0.1:8000", plane.url))  # noqa: S102
    assert capsys.readouterr().out == "COMPLETED hello\n"
    assert plane.calls[0].headers["Authorization"] == "Bearer secret"


def test_the_commands_of_the_readme_are_understood():
    (block,) = re.findall(r"```sh\nexport CONTROLPLANE_URL=.*?\n(.*?)```", README, re.DOTALL)
    lines = [line.removeprefix("controlplane ") for line in block.splitlines()]
    assert len(lines) >= 4
    for line in lines:
        assert build_parser("controlplane").parse_args(shlex.split(line)).command
