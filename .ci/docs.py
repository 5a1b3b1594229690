"""Build the documentation as a site in dist/docs, and refuse broken links and anything from other hosts.

The folders of docs/ are listed in the navigation by the titles of their pages. Diagrams of states become tables,
because the program that would draw them in a browser comes from another host.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "dist" / "docs"
DIAGRAM = re.compile(r"```mermaid\nstateDiagram-v2\n(.*?)```", re.DOTALL)
TRANSITION = re.compile(r"^ *(\w+) --> (\w+)(?: : (.*))?$", re.MULTILINE)
FOLDER = re.compile(r'"(how-to|reference|explanation|decisions)"')
LOADS = re.compile(
    r"""<(?:script|img|iframe|source|audio|video|embed)\b[^>]*?\s(?:src|srcset)="?(?:https?:)?//[^">\s]*"""
    r"""|<link\b(?![^>]*rel="?(?:canonical|alternate|next|prev))[^>]*?\shref="?(?:https?:)?//[^">\s]*"""
    r"""|@import\s+["']?(?:https?:)?//[^"'\s]*|url\(["']?(?:https?:)?//[^"')]*|class="?mermaid\b"""
)


def tabulate(diagram: re.Match[str]) -> str:
    """Return a Mermaid diagram of states as a Markdown table."""
    onward: dict[str, list[str]] = {}
    for before, after, movers in TRANSITION.findall(diagram[1]):
        onward.setdefault(before, []).append(f"{after} ({movers})" if movers else after)
    return "\n".join(
        ["| from | to |", "|---|---|", *(f"| {state} | {', '.join(to)} |" for state, to in onward.items())]
    )


def list_pages(docs: Path, folder: str) -> str:
    """Return the pages of a folder for the navigation, sorted by title, its index first."""
    pages = {page.read_text().partition("\n")[0]: page.name for page in (docs / folder).glob("*.md")}
    names = sorted(pages, key=lambda title: (pages[title] != "index.md", title.lower()))
    return "[" + ", ".join(f'"{folder}/{pages[title]}"' for title in names) + "]"


def find_loads(site: Path) -> list[str]:
    """Return what the pages and styles of a site load from other hosts."""
    return [
        f"{path.relative_to(site)}: {load[0]}"
        for path in sorted(site.rglob("*"))
        if path.suffix in {".html", ".css"}
        for load in LOADS.finditer(path.read_text())
    ]


def build() -> str | int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        docs = folder / "docs"
        shutil.copytree(ROOT / "docs", docs)
        for page in docs.rglob("*.md"):
            page.write_text(DIAGRAM.sub(tabulate, page.read_text()))
        config = FOLDER.sub(lambda match: list_pages(docs, match[1]), (ROOT / ".ci/zensical.toml").read_text())
        (folder / "zensical.toml").write_text(config)
        command = [
            sys.executable,
            "-m",
            "zensical",
            "build",
            "--strict",
            "--config-file",
            str(folder / "zensical.toml"),
        ]
        if status := subprocess.run(command, cwd=folder).returncode:
            return status
        if loads := find_loads(folder / "site"):
            return "\n".join(["The site loads something from another host:", *loads])
        shutil.rmtree(SITE, ignore_errors=True)
        shutil.copytree(folder / "site", SITE)
    sys.stdout.write(f"Open {SITE / 'index.html'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(build())
