"""Laws of garbage collection: whatever is on the disk, what rows name and what is of others stays."""

from __future__ import annotations

import re
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.catalog_samples import publish

from registry.catalog import open_catalog
from registry.publishing.garbage import GarbageCollector, GarbageOutcome
from registry.storage import open_store
from registry.storage.names import Owner

ALIVE = Owner.this_process().mark()
DEAD = f"{ALIVE.partition('t')[0]}t1"
PARTS = st.sampled_from(
    [
        *("mnist", "plain", "1.0.0", "2.0.0", "shard", ".owner.json", ".reservation.json", "notes"),
        *("incomplete.0a1b2c3d_1.0.0", "incomplete.AB12CD_1.0.0", "incomplete.zz_1", "damaged.0a1b2c3d_1.0.0"),
        *("damaged.0a1b2c3d_2.0.0", "leftover.0a1b2c3d_1.0.0", "damaged.1_1.0.0", "leftover.0a1b2c3d"),
        *(f"incomplete.0a1b2c3d{ALIVE}_shard", f"incomplete.0a1b2c3d{DEAD}_shard"),
    ]
)
PATHS = st.lists(PARTS, min_size=1, max_size=5).map("/".join)
OURS = re.compile(r"(incomplete\.[0-9a-f]{8}|damaged\.[0-9a-f]{8}|leftover\.[0-9a-f]{8}).*_.*", flags=re.DOTALL)


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@given(files=st.sets(PATHS, max_size=25), locations=st.lists(PATHS, max_size=4, unique=True), is_absolute=st.booleans())
def test_only_files_of_the_registry_that_no_row_is_near_are_removed(
    sqlite_template: Path, files: set[str], locations: list[str], is_absolute: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        data = Path(name, "data").resolve()
        for file in sorted(files):
            if not any(other.startswith(f"{file}/") for other in files) and not (data / file).exists():
                (data / file).parent.mkdir(parents=True, exist_ok=True)
                (data / file).write_text("x")
        with open_catalog(shutil.copy(sqlite_template, Path(name, "catalog.db"))) as catalog:
            for number, location in enumerate(locations):
                place = str(data / location) if is_absolute else location
                publish(catalog, f"named:{number}.0.0", content=str(number), location=place)
            collector = GarbageCollector(open_store(data), catalog, older_than=timedelta(0), actor="ann")
            before = below(data)
            for one in list(collector.find()):
                if one.outcome is GarbageOutcome.FOUND:
                    collector.remove(one)
            gone = before - below(data)
            assert not [one for one in collector.find() if one.outcome is GarbageOutcome.FOUND]

    for path in gone:
        parts = path.split("/")
        assert any(OURS.fullmatch(part) for part in parts[:4]), path
        assert ALIVE not in path
        for location in locations:
            is_inside = path.startswith(f"{location}/")
            # In the folder of a version, only single files go, which nobody finished.
            assert not is_inside or parts[-1].startswith("incomplete.0a1b2c3d"), (path, location)
            assert path != location
