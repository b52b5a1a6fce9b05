"""Killed at the worst moment, out of disk, two at once: nothing half done is ever visible, and a second run finishes.

Every fault is real: the process is killed with SIGKILL at the place named, from a thin wrapper around the very call.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from support import warm_python
from support.levels import cases

import registry
from registry.errors import ConflictError, ShardMismatchError, VersionExistsError, VersionWithdrawnError
from registry.features import FeaturesDict

KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"

# Code that wraps one function so that the process dies just before, inside or just after it.
PLACES = {
    "before the staged folder has an owner": """
        import os
        os.link = lambda *arguments, **options: die()
    """,
    "while writing the second shard": """
        from registry.tfrecord import RecordWriter
        write, count = RecordWriter.write_frames, [0]
        def dying(self, data, **options):
            count[0] += 1
            if count[0] > 1: die()
            return write(self, data, **options)
        RecordWriter.write_frames = dying
    """,
    "before the move": """
        from registry.storage import StagedFolder
        StagedFolder.commit = lambda self: die()
    """,
    "after the move": """
        from registry.storage import StagedFolder
        commit = StagedFolder.commit
        def dying(self):
            commit(self)
            die()
        StagedFolder.commit = dying
    """,
    "inside the transaction": """
        import sqlalchemy
        from sqlalchemy import event
        from sqlalchemy.engine import Engine
        def dying(connection, cursor, statement, parameters, context, executemany):
            if statement.upper().startswith("INSERT INTO EVENT"): die()
        event.listen(Engine, "after_cursor_execute", dying)
    """,
    "just before the commit": """
        from sqlalchemy import event
        from sqlalchemy.engine import Engine
        def dying(connection):
            die()
        import registry.api
        inner = registry.api.connect
        def connect(*arguments, **options):
            catalog = inner(*arguments, **options)
            event.listen(Engine, "commit", dying)
            return catalog
        registry.api.connect = connect
    """,
}


def build_and_die(catalog_url: str, data_dir: Path, place: str) -> int:
    """Build the digits in a process of its own that is killed at ``place``; its return code."""
    script = "\n".join(
        (
            "def die():\n    " + KILL,
            textwrap.dedent(PLACES[place]),
            "import registry.api",
            f"registry.api.connect({catalog_url!r}, data_dir={str(data_dir)!r}).build('digits')",
        )
    )
    done = warm_python.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.returncode


@pytest.mark.parametrize("place", cases(PLACES, everyday=3))
def test_a_killed_build_publishes_nothing_and_a_second_run_finishes(
    catalog_url: str, tmp_path: Path, place: str
) -> None:
    data_dir = tmp_path / "datasets"
    build_and_die(catalog_url, data_dir, place)
    with registry.connect(catalog_url, data_dir=data_dir, create=True) as catalog:
        assert catalog.datasets() == ()
        has_finished = any(data_dir.rglob(".finished.json"))
        with pytest.warns(registry.RegistryWarning, match="finished shards") if has_finished else nullcontext():
            publication = catalog.build("digits")
        assert publication.newly
        digits = catalog.dataset("digits")
        assert len(list(digits.read("train"))) == 1797
        assert digits.verify(deep=True).faults == ()
    assert [path.name for path in (data_dir / "digits").iterdir()] == ["1.0.0"], "no leavings of the killed build"


FULL = """
import resource, sys
import registry
from registry.errors import StorageError
catalog = registry.connect(sys.argv[1], data_dir=sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))  # the one shard is larger, the catalog is not
try:
    catalog.build("digits", num_shards=1)
except StorageError as error:
    print(error.code, error.hint)
"""


def test_a_full_disk_during_a_build_leaves_no_files(catalog_url: str, tmp_path: Path) -> None:
    data_dir = tmp_path / "datasets"
    arguments = [sys.executable, "-c", FULL, catalog_url, str(data_dir)]
    done = warm_python.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("storage ")
    assert "space" in done.stdout or "large" in done.stdout
    assert not list(data_dir.rglob("*tfrecord*"))
    with registry.connect(catalog_url, data_dir=data_dir, create=True) as catalog:
        assert catalog.datasets() == ()
        assert catalog.build("digits", num_shards=1).newly


RACER = """
import sys, time
import registry
from registry.errors import RegistryError
url, data_dir, folder, start = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
catalog = registry.connect(url, data_dir=data_dir)
time.sleep(max(0, start - time.time() - 0.01))
while time.time() < start: pass
try:
    print("published" if catalog.publish(folder).newly else "already")
except RegistryError as error:
    print(error.code)
"""


def race(catalog_url: str, data_dirs: list[Path], folders: list[Path]) -> list[str]:
    """Publish each of ``folders`` in its own process, all at the same moment, and return their outputs."""
    import time

    start = str(time.time() + 1.5)
    racers = [
        warm_python.Popen(
            [sys.executable, "-c", RACER, catalog_url, str(data_dir), str(folder), start],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for data_dir, folder in zip(data_dirs, folders, strict=True)
    ]
    return sorted(racer.communicate(timeout=600)[0].strip() for racer in racers)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders of digits:1.0.0 with different content, for all tests of this file: copy them."""
    folders = []
    for shards in (3, 5):
        place = tmp_path_factory.mktemp(f"prepared-{shards}")
        with registry.connect(place / "catalog.db", data_dir=place) as catalog:
            catalog.build("digits", num_shards=shards)
        folders.append(place / "digits" / "1.0.0")
    return folders


@pytest.fixture
def prepared(built: list[Path], tmp_path: Path) -> list[Path]:
    """Two folders of digits:1.0.0 with different content, which a test may change."""
    targets = [tmp_path / folder.parents[1].name / "digits" / "1.0.0" for folder in built]
    return [shutil.copytree(folder, target) for folder, target in zip(built, targets, strict=True)]


def test_publishers_of_the_same_content_all_succeed_once(
    catalog_url: str, tmp_path: Path, prepared: list[Path]
) -> None:
    registry.connect(catalog_url).close()
    data_dir = tmp_path / "datasets"
    assert race(catalog_url, [data_dir] * 4, [prepared[0]] * 4) == ["already", "already", "already", "published"]
    with registry.connect(catalog_url, data_dir=data_dir) as catalog:
        assert len(catalog.versions("digits")) == 1
        assert catalog.dataset("digits").verify(deep=True).faults == ()


def test_one_of_two_publishers_of_different_content_wins_and_the_other_gets_an_error(
    catalog_url: str, tmp_path: Path, prepared: list[Path]
) -> None:
    registry.connect(catalog_url).close()
    data_dirs = [tmp_path / "here", tmp_path / "there"]
    outcomes = race(catalog_url, data_dirs, prepared)
    # A publisher that begins after the other has recorded its data directory is refused for that.
    assert outcomes in (["published", "version_exists"], ["other_data_directory", "published"])
    with registry.connect(catalog_url, data_dir=data_dirs[0]) as catalog:
        assert len(catalog.versions("digits")) == 1
        shards = catalog.dataset("digits").splits["train"].num_shards
    winner, loser = data_dirs if shards == 3 else reversed(data_dirs)
    with registry.connect(catalog_url, data_dir=winner) as catalog:
        assert catalog.dataset("digits").verify(deep=True).faults == ()
    assert not list(loser.rglob("*.tfrecord*")), "the loser's bytes are gone"


def test_one_of_two_publishers_into_one_folder_wins_and_the_other_gets_an_error(
    catalog_url: str, tmp_path: Path, prepared: list[Path]
) -> None:
    registry.connect(catalog_url).close()
    data_dir = tmp_path / "datasets"
    assert race(catalog_url, [data_dir] * 2, prepared) == ["published", "version_exists"]
    with registry.connect(catalog_url, data_dir=data_dir) as catalog:
        assert len(catalog.versions("digits")) == 1
        assert catalog.dataset("digits").verify(deep=True).faults == ()


def test_different_content_under_a_used_number_is_refused_and_changes_nothing(
    catalog_url: str, tmp_path: Path, prepared: list[Path]
) -> None:
    with registry.connect(catalog_url, data_dir=tmp_path / "datasets") as catalog:
        catalog.publish(prepared[0])
        with pytest.raises(VersionExistsError, match=r"digits:1\.0\.0 is published with other content") as caught:
            catalog.publish(prepared[1])
        assert "Raise the version" in (caught.value.hint or "")
        assert catalog.dataset("digits").verify(deep=True).faults == ()
        assert catalog.publish(prepared[0]).newly is False


def test_a_folder_that_no_row_describes_is_not_overwritten(
    catalog_url: str, tmp_path: Path, prepared: list[Path]
) -> None:
    place = tmp_path / "datasets" / "digits" / "1.0.0"
    place.mkdir(parents=True)
    (place / "thesis.txt").write_text("three years of work")
    with registry.connect(catalog_url, data_dir=tmp_path / "datasets", create=True) as catalog:
        with pytest.raises(ConflictError, match="contains other data"):
            catalog.publish(prepared[0])
        assert catalog.datasets() == ()
    assert (place / "thesis.txt").read_text() == "three years of work"


def test_a_damaged_version_is_rebuilt_in_its_place(catalog_url: str, tmp_path: Path) -> None:
    with registry.connect(catalog_url, data_dir=tmp_path / "datasets") as catalog:
        catalog.build("digits")
        (tmp_path / "datasets/digits/1.0.0/digits-train.tfrecord-00001-of-00004").write_bytes(b"")
        assert len(catalog.dataset("digits").verify().faults) == 1
        assert catalog.build("digits", rebuild=True).newly is False
        assert catalog.dataset("digits").verify(deep=True).faults == ()


def test_a_losing_publisher_never_removes_files_of_the_winner(
    catalog_url: str, tmp_path: Path, prepared: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the loser's move and its row the number is taken elsewhere, and the winner's bytes come here too."""
    from registry.catalog.sql_catalog import SqlCatalog

    here, there = tmp_path / "here", tmp_path / "there"
    publish, rivals = SqlCatalog.publish, []

    def late(self: SqlCatalog, *arguments: Any, **options: Any) -> bool:
        monkeypatch.setattr(SqlCatalog, "publish", publish)
        with registry.connect(catalog_url, data_dir=there) as elsewhere:
            assert elsewhere.publish(prepared[1]).newly
        command = [sys.executable, "-c", RACER, catalog_url, str(here), str(prepared[1]), "0"]
        rivals.append(warm_python.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        with suppress(subprocess.TimeoutExpired):
            rivals[0].wait(timeout=2)  # it may well have to wait for us
        return publish(self, *arguments, **options)

    monkeypatch.setattr(SqlCatalog, "publish", late)
    with registry.connect(catalog_url, data_dir=here) as catalog:
        with pytest.raises(VersionExistsError):
            catalog.publish(prepared[0])
        assert rivals[0].communicate(timeout=600)[0].strip() == "already"
        assert catalog.dataset("digits").verify(deep=True).faults == ()
    assert not list((here / "digits").glob("incomplete.*"))


def test_a_version_that_the_catalog_cannot_store_leaves_no_folder(
    catalog_url: str, tmp_path: Path, prepared: list[Path]
) -> None:
    with_config = tmp_path / "with_config"
    shutil.copytree(prepared[0], with_config)
    info = json.loads((with_config / "dataset_info.json").read_text())
    (with_config / "dataset_info.json").write_text(json.dumps(info | {"configName": "plain"}))
    with registry.connect(catalog_url, data_dir=tmp_path / "datasets") as catalog:
        catalog.publish(prepared[0])
        with pytest.raises(ConflictError, match="is published without configs"):
            catalog.publish(with_config)
    assert [path for path in (tmp_path / "datasets/digits/plain").rglob("*") if path.is_file()] == []


def test_of_many_that_repair_a_damaged_folder_one_does(catalog_url: str, tmp_path: Path, prepared: list[Path]) -> None:
    data_dir = tmp_path / "datasets"
    with registry.connect(catalog_url, data_dir=data_dir) as catalog:
        catalog.publish(prepared[0])
        next((data_dir / "digits/1.0.0").glob("*tfrecord*")).write_bytes(b"")
        assert race(catalog_url, [data_dir] * 5, [prepared[0]] * 5) == ["already"] * 5
        assert catalog.dataset("digits").verify(deep=True).faults == ()
    assert len(list((data_dir / "digits").glob("damaged.*"))) == 1


def test_a_build_writes_the_files_if_only_the_catalog_is_shared(catalog_url: str, tmp_path: Path) -> None:
    with registry.connect(catalog_url, data_dir=tmp_path / "here") as catalog:
        catalog.build("digits")
    with registry.connect(catalog_url, data_dir=tmp_path / "there") as catalog:
        assert catalog.build("digits").newly is False
        assert catalog.dataset("digits").verify(deep=True).faults == ()


def test_publishing_removes_the_files_of_a_killed_publisher(
    catalog_url: str, tmp_path: Path, prepared: list[Path]
) -> None:
    place = tmp_path / "datasets" / "digits"
    script = (
        "import os, sys; from registry.storage import open_store\n"
        "staged = open_store(sys.argv[1]).stage('digits/1.0.0')\n"
        "with staged.store.create('shard') as file: file.write(b'x')\n" + KILL
    )
    warm_python.run([sys.executable, "-c", script, str(place.parent)], check=False)
    assert len(list(place.glob("incomplete.*"))) == 1
    with registry.connect(catalog_url, data_dir=place.parent) as catalog:
        catalog.publish(prepared[0])
    assert [path.name for path in place.iterdir()] == ["1.0.0"]


def test_a_folder_that_promises_very_many_shards_is_refused_at_once(tmp_path: Path, prepared: list[Path]) -> None:
    info = json.loads((prepared[0] / "dataset_info.json").read_text())
    info["splits"][0]["shardLengths"] = [1] * 100_000
    (prepared[0] / "dataset_info.json").write_text(json.dumps(info))
    with (
        registry.connect(tmp_path / "catalog.db") as catalog,
        pytest.raises(ShardMismatchError, match=r"(?s)of 100000 shards .* the others were not checked") as caught,
    ):
        catalog.publish(prepared[0])
    assert "no such file" in str(caught.value).lower()


def test_a_folder_of_other_code_is_not_taken_for_this_build(
    catalog_url: str, tmp_path: Path, prepared: list[Path]
) -> None:
    data_dir = tmp_path / "datasets"
    shutil.copytree(prepared[0], data_dir / "digits" / "1.0.0")
    with registry.connect(catalog_url, data_dir=data_dir, create=True) as catalog:
        with pytest.raises(ConflictError, match="contains other data"):
            catalog.build("digits")
        assert catalog.datasets() == ()
        assert catalog.build("digits", num_shards=3).newly


class Numbers(registry.DatasetBuilder):
    VERSION = "2.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"number": "int64"})

    def splits(self) -> dict[str, list[tuple[int, dict[str, int]]]]:
        return {"train": [(1, {"number": self.version.major})]}


class Older(Numbers):
    name = "numbers"
    VERSION = "1.0.0"


def test_older_code_does_not_take_the_canonical_version_back(catalog_url: str, tmp_path: Path) -> None:
    with registry.connect(catalog_url, data_dir=tmp_path / "datasets") as catalog:
        catalog.build(Numbers)
        catalog.build(Older)
        assert str(catalog.dataset("numbers").reference) == "numbers:2.0.0"
        assert [str(one.version) for one in catalog.versions("numbers")] == ["2.0.0", "1.0.0"]


def test_a_version_below_a_yanked_canonical_version_does_not_become_canonical(catalog_url: str, tmp_path: Path) -> None:
    class Patched(Older):
        name = "numbers"
        VERSION = "1.0.1"

    class Mended(Older):
        name = "numbers"
        VERSION = "2.0.1"

    with registry.connect(tmp_path / "elsewhere.db", data_dir=tmp_path / "prepared") as elsewhere:
        elsewhere.build(Patched)
    with registry.connect(catalog_url, data_dir=tmp_path / "datasets") as catalog:
        catalog.build(Numbers)
        catalog.lifecycle.yank("numbers:2.0.0", reason="wrong")
        catalog.build(Older)
        catalog.publish(tmp_path / "prepared" / "numbers" / "1.0.1")
        with pytest.raises(VersionWithdrawnError, match=r"the canonical version 2\.0\.0 of numbers is yanked: wrong"):
            catalog.dataset("numbers")
        catalog.build(Mended)
        assert str(catalog.dataset("numbers").reference) == "numbers:2.0.1"
