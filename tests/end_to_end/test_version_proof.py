"""A number is proved before it is published: with old versions, rivals, crashes, and more data than memory."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from support import warm_python
from support.catalog_samples import execute
from support.prepared_samples import ANIMALS, animals, prepare

import registry
from registry.api import Catalog
from registry.catalog import load_shards, open_catalog
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import VersionExistsError, VersionTooSmallError
from registry.features import FeaturesDict, Image, Tensor
from registry.model import Version
from registry.publishing import Target, publish_folder
from registry.storage import open_store

TAMED = FeaturesDict({**ANIMALS, "tame": "bool"})


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "datasets"


@pytest.fixture
def catalog(catalog_url: str, data_dir: Path) -> Iterator[Catalog]:
    with registry.connect(catalog_url, data_dir=data_dir) as opened:
        yield opened


def publish_as_older_software(catalog_url: str, folder: Path, data_dir: Path, template: Path) -> None:
    """Publish ``folder`` in place, below ``data_dir``, without fingerprints, as before they existed."""
    scratch = template.with_name(f"scratch-{folder.name}.db")
    with registry.connect(scratch, data_dir=data_dir) as made, open_catalog(catalog_url) as target:
        made.publish(folder)
        version = made.dataset(f"animals:{folder.name}").facts
        shards = {split.name: load_shards(made.backend.shards, version, split.name) for split in version.splits}
        assert target.publish(version, shards, promote=True, actor="ann")
        assert target.fingerprints(version) == {}


@pytest.fixture
def older(catalog_url: str, data_dir: Path, tmp_path: Path) -> Path:
    """animals:1.0.0, 3,000 examples in 8 shards, published by older software; its folder."""
    folder = prepare(data_dir / "animals/1.0.0", "1.0.0", {"train": animals(3000)}, shards=8)
    publish_as_older_software(catalog_url, folder, data_dir, tmp_path / "catalog.db")
    return folder


def actions(url: str) -> list[str]:
    return [action for (action,) in execute(url, "SELECT action FROM event ORDER BY id")]


def test_an_older_version_is_fingerprinted_when_it_is_needed(
    catalog: Catalog, catalog_url: str, tmp_path: Path, older: Path
) -> None:
    second = prepare(tmp_path / "second", "1.0.1", {"train": animals(3000)}, shards=3, compress=True)
    assert catalog.preview(second).refusal is None
    assert actions(catalog_url) == ["publish"], "a dry run keeps nothing"
    publication = catalog.publish(second)
    assert publication.proof.note == "the same records and features as animals:1.0.0"
    assert actions(catalog_url) == ["publish", "fingerprint", "data-dir", "publish"]
    shutil.rmtree(older)
    third = prepare(tmp_path / "third", "1.0.0", {"train": animals(3000, age=1)}, name="animals")
    with pytest.raises(VersionExistsError):
        catalog.publish(third)
    between = prepare(tmp_path / "zero", "1.0.2", {"train": animals(3000)}, shards=4)
    assert catalog.publish(between).newly


def test_without_its_files_an_older_version_allows_a_major_number_only(
    catalog: Catalog, catalog_url: str, tmp_path: Path, older: Path
) -> None:
    missing = older / "animals-train.tfrecord-00002-of-00008"
    missing.unlink()
    with pytest.raises(VersionTooSmallError) as caught:
        catalog.publish(prepare(tmp_path / "second", "1.1.0", {"train": animals(3000)}))
    assert caught.value.message == (
        "animals:1.1.0 is too small a number: since animals:1.0.0 the changes exceed a MINOR version\n"
        "  split train was not compared: animals:1.0.0 was published without fingerprints, "
        "and its files cannot be read: animals:1.0.0: 1 of 8 shards do not match their description"
    )
    assert caught.value.hint == "The smallest number that may follow 1.0.0 is 2.0.0."
    publication = catalog.publish(prepare(tmp_path / "third", "2.0.0", {"train": animals(3000)}))
    assert publication.newly
    assert actions(catalog_url) == ["publish", "data-dir", "publish"]
    diff = catalog.diff("animals:1.0.0", "animals:2.0.0")
    assert (diff.changes.level.name, diff.records, diff.unread) == ("MAJOR", (), "")


def test_what_older_software_published_is_not_refused_afterwards(
    catalog: Catalog, catalog_url: str, data_dir: Path, tmp_path: Path, older: Path
) -> None:
    folder = prepare(data_dir / "animals/1.0.1", "1.0.1", {"train": animals(2999)})
    publish_as_older_software(catalog_url, folder, data_dir, tmp_path / "second.db")
    preview = catalog.preview(folder)
    assert (preview.is_published, preview.refusal) == (True, None)
    assert preview.proof.refused is not None
    assert catalog.publish(folder).newly is False
    assert catalog.publish(prepare(tmp_path / "next", "1.0.2", {"train": animals(2999)}, shards=2)).newly


def test_the_very_same_shards_need_no_fingerprints_of_an_older_version(
    catalog: Catalog, tmp_path: Path, older: Path
) -> None:
    second = prepare(tmp_path / "second", "1.0.1", {"train": animals(3000)}, shards=8)
    (older / "animals-train.tfrecord-00002-of-00008").unlink()
    assert catalog.publish(second).newly


def test_an_older_version_is_not_fingerprinted_from_files_that_were_changed(
    catalog: Catalog, catalog_url: str, tmp_path: Path, older: Path
) -> None:
    forged = prepare(tmp_path / "forged", "1.0.0", {"train": animals(3000, age=-3)}, shards=8)
    for path in forged.iterdir():
        (older / path.name).write_bytes(path.read_bytes())
    with pytest.raises(VersionTooSmallError, match="1 of 8 shards do not match their description"):
        catalog.publish(prepare(tmp_path / "second", "1.0.1", {"train": animals(3000, age=-3)}))
    assert actions(catalog_url) == ["publish"]


def test_what_is_published_is_fingerprinted_with_the_row(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    folder = prepare(tmp_path / "first", "1.0.0", {"train": animals(3000), "test": animals(1)}, features=ANIMALS)
    catalog.publish(folder)
    rows = execute(
        catalog_url,
        "SELECT split.name, feature, algorithm, count(*) FROM fingerprint JOIN split ON split.id = split_id "
        "GROUP BY split.name, feature, algorithm ORDER BY 1, 2, 3",
    )
    paths = ["age", "kind", "name"]
    assert rows == [
        row
        for split, blocks in (("test", 1), ("train", 3))
        for row in [
            (split, "", "registry.split/1", 1),
            *(
                (split, path, algorithm, count)
                for path in paths
                for algorithm, count in (("registry.block/1", blocks), ("registry.split/1", 1))
            ),
        ]
    ]


RACER = """
import sys
import registry
from registry.errors import RegistryError
url, data_dir, folder = sys.argv[1:]
with registry.connect(url, data_dir=data_dir) as catalog:
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print("published" if catalog.publish(folder).newly else "already")
    except RegistryError as error:
        print(error.code)
"""


def test_concurrent_publishers_of_neighbouring_numbers_cannot_bypass_the_proof(
    catalog: Catalog, catalog_url: str, data_dir: Path, tmp_path: Path
) -> None:
    """Four PATCH steps with and without a feature: in any order, finally none of them may change it."""
    catalog.publish(prepare(tmp_path / "first", "1.0.0", {"train": animals(30)}))
    tamed = [{**example, "tame": True} for example in animals(30)]
    folders = [
        prepare(tmp_path / "a", "1.1.0", {"train": tamed}, features=TAMED),
        prepare(tmp_path / "b", "1.1.1", {"train": animals(30)}),
        prepare(tmp_path / "c", "1.1.2", {"train": tamed}, features=TAMED, shards=2),
        prepare(tmp_path / "d", "1.1.3", {"train": animals(30)}, shards=3),
    ]
    racers = [
        warm_python.Popen(
            [sys.executable, "-c", RACER, catalog_url, str(data_dir), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for folder in folders
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    outcomes = [racer.communicate(timeout=300)[0].strip() for racer in racers]
    assert set(outcomes) <= {"published", "version_too_small"}
    published = [one.version for one in catalog.versions("animals")][::-1]
    assert len(published) == 1 + outcomes.count("published")
    for lower, higher in pairwise(published):
        changes = catalog.diff(f"animals:{lower}", f"animals:{higher}").changes
        assert changes.smallest is not None
        assert changes.smallest <= higher, f"{lower} -> {higher}: {changes.changes}"
    folders_left = {path.name for path in (data_dir / "animals").iterdir()}
    assert folders_left == {str(version) for version in published}


def rival_publishes_first(monkeypatch: pytest.MonkeyPatch, catalog_url: str, elsewhere: Path, folder: Path) -> None:
    """Between the proof and the row of the next publication, ``folder`` is published from another machine."""
    publish = SqlCatalog.publish

    def late(self: SqlCatalog, *arguments: Any, **options: Any) -> bool:
        monkeypatch.setattr(SqlCatalog, "publish", publish)
        with registry.connect(catalog_url) as rival:
            target = Target(store=open_store(elsewhere), catalog=rival.backend, promote=None, actor="rival")
            assert publish_folder(open_store(folder), target).newly
        return publish(self, *arguments, **options)

    monkeypatch.setattr(SqlCatalog, "publish", late)


def test_a_rival_below_makes_the_number_be_proved_again(
    catalog: Catalog, catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.publish(prepare(tmp_path / "first", "1.0.0", {"train": animals(30)}))
    rival = prepare(tmp_path / "rival", "1.0.1", {"train": animals(30)}, shards=2)
    rival_publishes_first(monkeypatch, catalog_url, tmp_path / "elsewhere", rival)
    publication = catalog.publish(prepare(tmp_path / "second", "1.0.2", {"train": animals(30)}, shards=3))
    assert publication.proof.neighbours == (Version(1, 0, 1), None)
    assert publication.proof.note == "the same records and features as animals:1.0.1"


def test_a_concurrent_version_that_makes_the_number_too_small_is_reported_with_the_record(
    catalog: Catalog, catalog_url: str, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = prepare(tmp_path / "rival", "1.0.0", {"train": animals(30, age=-3)})
    # The rival's files are here, too: the record can be named.
    prepare(data_dir / "animals/1.0.0", "1.0.0", {"train": animals(30, age=-3)})
    rival_publishes_first(monkeypatch, catalog_url, tmp_path / "elsewhere", rival)
    with pytest.raises(VersionTooSmallError) as caught:
        catalog.publish(prepare(tmp_path / "second", "1.0.2", {"train": animals(30)}))
    assert caught.value.message == (
        "animals:1.0.2 is too small a number: since animals:1.0.0 the changes exceed a PATCH version\n"
        "  split train has other values of age, the first of them in records 0..30\n"
        "  train record 15: age is 15, was -3"
    )
    assert [path.name for path in (data_dir / "animals").iterdir()] == ["1.0.0"]
    assert [str(one.version) for one in catalog.versions("animals")] == ["1.0.0"]


def test_a_rival_above_makes_the_number_be_proved_again(
    catalog: Catalog, catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = prepare(tmp_path / "rival", "1.0.5", {"train": animals(31)})
    rival_publishes_first(monkeypatch, catalog_url, tmp_path / "elsewhere", rival)
    with pytest.raises(VersionTooSmallError, match=r"in animals:1\.0\.5 the changes would exceed a PATCH"):
        catalog.publish(prepare(tmp_path / "first", "1.0.0", {"train": animals(30)}))


def test_withdrawn_versions_count(catalog: Catalog, catalog_url: str, tmp_path: Path) -> None:
    catalog.publish(prepare(tmp_path / "first", "1.0.0", {"train": animals(30)}))
    for state in ("yanked", "dropped"):
        execute(catalog_url, f"UPDATE dataset_version SET state = '{state}'")  # noqa: S608 (the two words above)
        with pytest.raises(VersionTooSmallError, match=r"since animals:1\.0\.0"):
            catalog.publish(prepare(tmp_path / state, "1.0.1", {"train": animals(31)}))


def test_each_config_has_numbers_of_its_own(catalog: Catalog, tmp_path: Path) -> None:
    for count, config in ((30, "a"), (31, "b")):
        folder = prepare(tmp_path / config, "1.0.0", {"train": animals(count)}, config=config)
        publication = catalog.publish(folder)
        assert publication.proof.lower is None
    refused = prepare(tmp_path / "c", "1.0.1", {"train": animals(30)}, config="b")
    with pytest.raises(VersionTooSmallError, match=r"since animals/b:1\.0\.0"):
        catalog.publish(refused)


def test_a_refused_build_leaves_no_files(catalog: Catalog, data_dir: Path) -> None:
    class Numbers(registry.DatasetBuilder):
        VERSION = "1.0.1"
        SUPPORTED_VERSIONS = ("1.0.0",)

        def features(self) -> FeaturesDict:
            return FeaturesDict({"number": "int64"})

        def splits(self) -> dict[str, Any]:
            return {"train": [(number, {"number": number + 10 * self.version.patch}) for number in range(5)]}

    catalog.build(Numbers(version="1.0.0"))
    with pytest.raises(VersionTooSmallError, match=r"train record 0: number is 1\d, was \d"):
        catalog.build(Numbers)
    assert [path.name for path in (data_dir / "numbers").iterdir()] == ["1.0.0"]


def test_splits_without_records_and_schemas_without_features_are_proved(catalog: Catalog, tmp_path: Path) -> None:
    nothing = FeaturesDict({})
    catalog.publish(prepare(tmp_path / "a", "1.0.0", {"train": [{}] * 3, "test": []}, features=nothing))
    catalog.publish(prepare(tmp_path / "b", "1.0.1", {"train": [{}] * 3, "test": []}, features=nothing, shards=2))
    with pytest.raises(VersionTooSmallError, match="split train has 4 records, had 3"):
        catalog.publish(prepare(tmp_path / "c", "1.0.2", {"train": [{}] * 4, "test": []}, features=nothing))
    with pytest.raises(VersionTooSmallError, match="split test has 1 record, had 0") as caught:
        catalog.publish(prepare(tmp_path / "d", "1.0.2", {"train": [{}] * 3, "test": [{}]}, features=nothing))
    assert "test record 0 is new" in caught.value.message
    publication = catalog.publish(prepare(tmp_path / "e", "1.1.0", {"train": animals(3), "test": []}))
    assert publication.proof.note == "the same records, with more features, as animals:1.0.1"


def test_features_of_any_name_are_stored(catalog: Catalog, tmp_path: Path) -> None:
    """Long names of letters that do not compress, a slash in a name, quotes, and a dict that is spelled alike."""
    long = "".join(chr(0x4E00 + number * 7919 % 20000) for number in range(2000))
    features = FeaturesDict(
        {
            long: "int64",
            "a/b": "int64",
            "a": {"b": Tensor(shape=(None, None), dtype="uint8", encoding="bytes")},
            "'\"%s": "bool",
        }
    )
    example = {long: 1, "a/b": 2, "a": {"b": [[3]]}, "'\"%s": True}
    catalog.publish(prepare(tmp_path / "a", "1.0.0", {"train": [example]}, features=features))
    catalog.publish(prepare(tmp_path / "b", "1.0.1", {"train": [example]}, features=features, compress=True))
    for place, changes in enumerate(({"a/b": 3}, {"a": {"b": [[4]]}}, {long: 2}, {"'\"%s": False})):
        folder = prepare(tmp_path / f"c{place}", "1.0.2", {"train": [example | changes]}, features=features)
        with pytest.raises(VersionTooSmallError, match="has other values of"):
            catalog.publish(folder)


def test_the_same_pixels_in_another_png_are_the_same_record(catalog: Catalog, tmp_path: Path) -> None:
    features = FeaturesDict({"image": Image(shape=(None, None, 3))})
    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, "PNG", compress_level=0)
    catalog.publish(prepare(tmp_path / "a", "1.0.0", {"train": [{"image": pixels}]}, features=features))
    catalog.publish(prepare(tmp_path / "b", "1.0.1", {"train": [{"image": file.getvalue()}]}, features=features))
    pixels = pixels.copy()
    pixels[3, 4, 1] ^= 1
    with pytest.raises(
        VersionTooSmallError, match=r"image differs in 1 of 6,000 values; the one at \[3, 4, 1\] is \d+ and was \d+"
    ):
        catalog.publish(prepare(tmp_path / "c", "1.0.2", {"train": [{"image": pixels}]}, features=features))


KILLED = """
import os, signal, sys
import registry
from registry.publishing import fingerprint
inner = fingerprint.StoredFold.__call__
def dying(self, run):
    if run.start:
        os.kill(os.getpid(), signal.SIGKILL)
    return inner(self, run)
fingerprint.StoredFold.__call__ = dying
registry.connect(sys.argv[1], data_dir=sys.argv[2]).publish(sys.argv[3])
"""


def test_a_publisher_killed_while_it_computes_the_proof_leaves_nothing_visible(
    catalog: Catalog, catalog_url: str, data_dir: Path, tmp_path: Path
) -> None:
    folder = prepare(tmp_path / "first", "1.0.0", {"train": animals(9000)}, shards=2)
    killed = warm_python.run([sys.executable, "-c", KILLED, catalog_url, str(data_dir), str(folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert catalog.datasets() == ()
    assert catalog.publish(folder).newly
    assert [path.name for path in (data_dir / "animals").iterdir()] == ["1.0.0"]


SMALL = """
import json, resource, sys
import registry
# No mapped files, and not what a process starts with: what it takes for itself.
resource.setrlimit(resource.RLIMIT_DATA, (280_000_000, 280_000_000))
seen = []
with registry.connect(sys.argv[1], data_dir=sys.argv[2]) as catalog:
    catalog.publish(sys.argv[3], progress=lambda one: seen.append(one.done))
    catalog.publish(sys.argv[4])
    diff = catalog.diff("animals:1.0.0", "animals:2.0.0")
(records,) = diff.records
print(json.dumps([seen[-1], records.same, records.changed, records.moved, str(records.first[0])]))
"""


@pytest.mark.long
def test_a_dataset_larger_than_memory_is_proved_and_compared(sqlite_template: Path, tmp_path: Path) -> None:
    """390 MB of data with a memory limit of 280 MB; the numbers of a PATCH and of a MAJOR version."""
    features = FeaturesDict({"blob": Tensor(shape=(300_000,), dtype="uint8", encoding="bytes")})
    blob = np.random.default_rng(0).integers(0, 256, 300_000, np.uint8)

    def blobs(changed: int) -> Iterator[dict[str, Any]]:
        for number in range(1300):
            blob[:3] = number % 256, number // 256, number == changed
            yield {"blob": blob}

    prepare(tmp_path / "a", "1.0.0", {"train": blobs(-1)}, features=features, shards=[1300])
    prepare(tmp_path / "b", "2.0.0", {"train": blobs(1050)}, features=features, shards=[500, 800])
    arguments = [
        shutil.copy(sqlite_template, tmp_path / "catalog.db"),
        tmp_path / "datasets",
        tmp_path / "a",
        tmp_path / "b",
    ]
    done = subprocess.run(
        [sys.executable, "-c", SMALL, *map(str, arguments)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = "record 1050: blob differs in 1 of 300,000 values; the one at [2] is 1 and was 0"
    assert json.loads(done.stdout) == [3 * 1300, 1299, 1, 0, expected]
