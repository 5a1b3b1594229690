"""Fleet map of the overview: one cell for each server, by cluster and type."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from controlplane.console.formatting import page_url
from jobs.selectors.fleet import LOOKS, FleetCell
from liveness.states import ServerType

CELLS_SHOWN = 2_000
"""Largest number of servers that have a cell each. Above it, one cell stands for `SERVERS_A_CELL` servers."""
SERVERS_A_CELL = 10
TYPES: dict[str, str] = {
    ServerType.WORKER: "Workers", ServerType.EXECUTOR: "Executors", ServerType.SCHEDULER: "Schedulers",
    ServerType.WEBSERVER: "Web servers", ServerType.INDEXER: "Indexers",
}  # fmt: skip
OWN, DEFAULT_CLUSTER = "Control plane", "default"


def present_fleet(by_type: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows of the map. Processes of the control plane share one row in each cluster."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for counts in by_type:
        words = OWN if counts["is_own"] else describe_type(counts["type"])
        query = {"cluster": counts["cluster"]} | ({} if counts["is_own"] else {"type": counts["type"]})
        row = rows.setdefault(
            (words, counts["cluster"]),
            {
                "words": words,
                "cluster": "" if counts["cluster"] == DEFAULT_CLUSTER else counts["cluster"],
                "url": f"{reverse('instance:servers')}?{urlencode(query)}",
                "well": 0,
                "present": 0,
                "found": [],
            },
        )
        row["well"] += counts["well"]
        row["present"] += counts["present"]
        row["found"] += counts["cells"]
    is_large = sum(row["present"] for row in rows.values()) > CELLS_SHOWN
    for row in rows.values():
        found = row.pop("found")
        row["cells"] = group_cells(found, row["url"]) if is_large else [present_cell(cell) for cell in found]
    shown = sorted(rows.values(), key=lambda row: (row["words"] == OWN, row["words"] != "Workers"))
    return {"rows": shown, "is_large": is_large, "servers_a_cell": SERVERS_A_CELL}


def describe_type(type: str) -> str:
    """Return the plural of a type, marked "external" if only processes of the control plane should have that type."""
    words = TYPES.get(type, type.capitalize())
    return words if type == ServerType.WORKER else f"{words}, external"


def present_cell(cell: FleetCell) -> dict[str, Any]:
    """Return a cell that links to its server. Its name has the server's name and state."""
    work = ", holds work" if cell.holds_work else ""
    return {
        "url": page_url("server", cell.id),
        "name": f"{cell.name}: {cell.look}{work}",
        "look": cell.look,
        "holds_work": cell.holds_work,
    }


def group_cells(cells: list[FleetCell], url: str) -> list[dict[str, Any]]:
    """Return a cell for each ten servers, coloured like the worst of them. It links to the list."""
    groups = [cells[start : start + SERVERS_A_CELL] for start in range(0, len(cells), SERVERS_A_CELL)]
    shown = []
    for group in groups:
        look = min((cell.look for cell in group), key=LOOKS.index)
        name = f"{len(group)} servers, {group[0].name} to {group[-1].name}: {look}"
        shown.append({"url": url, "name": name, "look": look, "holds_work": any(cell.holds_work for cell in group)})
    return shown
