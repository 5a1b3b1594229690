"""The pages of the documentation, and the code blocks on them."""

import re
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
CODE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
SHELLS = {"sh", "bash", "shell", "console"}


class Block(NamedTuple):
    """A block of shell code: the name of its page, and its text without the indentation of a list."""

    page: str
    text: str

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def shell_blocks(page: Path) -> list[Block]:
    """Return the shell blocks of a page, in order."""
    blocks = []
    for language, code in CODE.findall(page.read_text()):
        if language in SHELLS:
            indent = len(code) - len(code.lstrip(" "))
            text = "".join(line[indent:] if line.strip() else line for line in code.splitlines(keepends=True))
            blocks.append(Block(name_of(page), text))
    return blocks
