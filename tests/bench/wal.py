"""Writes of a piece of work, read from PostgreSQL's write-ahead log."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.embedded.postgres import PostgresServer
from tests.bench.database import run

VERSIONS = ("Heap/INSERT", "Heap/UPDATE", "Heap/HOT_UPDATE")
ENTRIES = ("Btree/INSERT_LEAF", "Btree/INSERT_POST", "Btree/SPLIT_L", "Btree/SPLIT_R")


@dataclass
class Writes:
    """Writes of so many units together."""

    units: int = 0
    bytes: int = 0
    """Without full pages written after a checkpoint."""
    records: Counter[str] = field(default_factory=Counter)

    def count(self, kinds: tuple[str, ...]) -> int:
        return sum(self.records[kind] for kind in kinds)

    def as_dict(self) -> dict[str, float]:
        """Return the writes per unit. `hot` is a share of all row updates."""
        updated = self.count(VERSIONS[1:])
        return {
            "row_versions": self.count(VERSIONS) / self.units,
            "row_locks": self.records["Heap/LOCK"] / self.units,
            "hot": self.records["Heap/HOT_UPDATE"] / updated if updated else 0.0,
            "index_entries": self.count(ENTRIES) / self.units,
            "wal_bytes": self.bytes / self.units,
        }


@contextmanager
def written(writes: Writes, data_dir: Path) -> Iterator[None]:
    """Add what all databases of this PostgreSQL write during the block."""
    begun = run("select pg_current_wal_insert_lsn()")
    yield
    run("select pg_switch_wal()")  # an incomplete page at the end cannot be read
    ended = run("select pg_current_wal_lsn()")
    place = PostgresServer(data_dir)
    read = place.run_program(
        "pg_waldump", "--stats=record", f"--start={begun}", f"--end={ended}", "--path", str(place.home / "pg_wal")
    )
    assert read.returncode == 0, read.stdout
    for line in read.stdout.splitlines():
        kind, *figures = [word for word in line.replace("(", " ").replace(")", " ").split() if word != "[0.00%]"]
        if "/" not in kind or len(figures) < 3:
            continue
        writes.records[kind.removesuffix("+INIT")] += int(figures[0])
        writes.bytes += int(figures[2])
