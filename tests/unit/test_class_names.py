"""Class names are unique in the repository, so that a search for one finds one class."""

import ast
from collections import defaultdict

from tests.support.processes import ROOT

PACKAGES = ("controlplane", "jobs", "liveness")
SHARED_NAMES = {"Command", "Migration"}
"""Names that Django prescribes."""
ANSWERS = ("answers", "answer_parts", "batch_answers", "flow_answers")
MAY_SHARE = {f"controlplane/client/{name}.py" for name in ANSWERS}
"""The client's answers are named like what they describe."""


def test_no_two_classes_have_the_same_name():
    files_of_class = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            if file not in MAY_SHARE:
                for statement in ast.parse(path.read_text()).body:
                    if isinstance(statement, ast.ClassDef):
                        files_of_class[statement.name].append(file)
    repeated = {name: files for name, files in files_of_class.items() if len(files) > 1 and name not in SHARED_NAMES}
    assert repeated == {}
