"""Full-screen view of the control plane: its state, and its servers, queues or jobs. It needs Textual (extra `top`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Static

from controlplane.client import views
from controlplane.client.asynchronous import Client
from controlplane.client.output import COLOURS, cell_text
from controlplane.client.session import Refused, Unreachable

ROWS = 100
"""Rows of each list, latest first."""
LISTS: dict[str, Mapping[str, Callable[[Any], Any]]] = {
    "servers": views.SERVERS, "queues": views.QUEUES, "jobs": views.JOBS,
}  # fmt: skip


class Top(App[None]):
    """Screen with the state of the control plane above one list, read again every `every` seconds."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "#state { height: auto; max-height: 8; padding: 0 1; } DataTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", show=False),
        Binding("s", "list('servers')", "servers"),
        Binding("u", "list('queues')", "queues"),
        Binding("j", "list('jobs')", "jobs"),
        Binding("p", "pause", "pause"),
        Binding("r", "look", "refresh"),
    ]

    def __init__(self, client: Client, every: float) -> None:
        super().__init__()
        self._client, self._every = client, every
        self._shown, self._is_paused = "servers", False

    def compose(self) -> ComposeResult:
        yield Static(id="state", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.set_interval(self._every, self._tick)
        self.action_list(self._shown)

    def _tick(self) -> None:
        if not self._is_paused:
            self.look()

    def action_list(self, name: str) -> None:
        """Show another list."""
        self._shown = name
        table = self.query_one(DataTable)
        table.clear(columns=True)
        table.add_columns(*LISTS[name])
        self.look()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused

    def action_look(self) -> None:
        self.look()

    @work(thread=True, exclusive=True)
    def look(self) -> None:
        """Read the state and the list in a thread, because a call may take seconds."""
        name = self._shown
        try:
            state = describe_state(self._client.instance())
            rows = list(read_rows(self._client, name))
        except (Unreachable, Refused) as error:
            self.call_from_thread(self._show, str(error), name, None)
        else:
            self.call_from_thread(self._show, state, name, rows)

    def _show(self, state: str, name: str, rows: list[list[Text]] | None) -> None:
        """Show what was read. `rows` is None after an error: the list stays as it was."""
        self.query_one("#state", Static).update(f"{state}\n{'paused, ' if self._is_paused else ''}{name}")
        if rows is None or name != self._shown:
            return
        table = self.query_one(DataTable)
        row, top = table.cursor_row, table.scroll_y
        table.clear()
        table.add_rows(rows)
        table.move_cursor(row=row)
        table.scroll_to(y=top, animate=False)


def describe_state(item: Mapping[str, Any]) -> str:
    """Return the state of the control plane in a few lines."""
    fields = views.instance_fields(item)
    return "\n".join(f"{name}: {cell_text(fields[name])}" for name in ("verdict", "servers", "jobs") if fields[name])


def read_rows(client: Client, name: str) -> Iterator[list[Text]]:
    """Yield the latest rows of a list."""
    for item in islice(getattr(client, name)(page=ROWS), ROWS):
        cells = (cell_text(cell_of(item)) for cell_of in LISTS[name].values())
        yield [Text(cell, style=COLOURS.get(cell, "")) for cell in cells]


def run(client: Client, every: float) -> int:
    """Show the screen until `q` is pressed."""
    Top(client, every).run()
    return 0
