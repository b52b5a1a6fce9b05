"""The disk space of versions: each file is counted once, whoever names it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.catalog_samples import sample
from support.prepared_samples import animals, prepare

import registry
from registry.cli.main import run
from registry.errors import AliasNotFoundError, StorageError, VersionNotFoundError
from registry.storage import open_store


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[registry.Catalog]:
    """animals:1.0.0 and 2.0.0 in the data directory, with two and three shards."""
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data") as made:
        made.publish(prepare(tmp_path / "one", shards=2))
        made.publish(prepare(tmp_path / "two", "2.0.0", splits={"train": animals(30)}, shards=3))
        yield made


def place(catalog: registry.Catalog, reference: str, location: str, lengths: Any, **options: Any) -> None:
    """Publish a made-up version at a location; its files have 17 bytes for each example."""
    version, shards = sample(reference, lengths=lengths, location=location, **options)
    catalog.backend.publish(version, shards, promote=True, actor="ann")


def put(data_dir: str, *names: str) -> None:
    """Objects of other programs below ``data_dir``, whatever their names."""
    import boto3

    client = boto3.client("s3", region_name="us-east-1", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    _, _, bucket, root = data_dir.split("/", 3)
    for name in names:
        client.put_object(Bucket=bucket, Key=f"{root}/{name}", Body=b"" if name.endswith("/") else b"x")


def sizes(folder: Path) -> int:
    """The bytes of shards and attachments."""
    files = [*folder.glob("*.tfrecord*"), *folder.glob(".attachments/*")]
    return sum(path.stat().st_size for path in files)


def test_versions_datasets_and_locations_add_up(catalog: registry.Catalog, tmp_path: Path) -> None:
    place(catalog, "apes/big:1.0.0", "/elsewhere/apes", {"train": [10, 20]})
    one, two = (tmp_path / f"data/animals/{number}" for number in ("1.0.0", "2.0.0"))

    found = catalog.usage()

    assert {str(each.reference): (each.location, each.num_files, each.num_bytes) for each in found.versions} == {
        "animals:1.0.0": (str(one), 3, sizes(one)),
        "animals:2.0.0": (str(two), 4, sizes(two)),
        "apes/big:1.0.0": ("/elsewhere/apes", 2, 510),
    }
    assert {name: (it.num_versions, it.num_files, it.num_bytes) for name, it in found.datasets.items()} == {
        "animals": (2, 7, sizes(one) + sizes(two)),
        "apes/big": (1, 2, 510),
    }
    assert {name: it.num_bytes for name, it in found.locations.items()} == {
        str(one): sizes(one),
        str(two): sizes(two),
        "/elsewhere/apes": 510,
    }
    assert (found.total.num_versions, found.total.num_files) == (3, 9)
    assert found.total.num_bytes == sum(it.num_bytes for it in found.datasets.values())


def test_files_that_versions_share_are_counted_once(catalog: registry.Catalog) -> None:
    place(catalog, "apes/big:1.0.0", "/shared", {"train": [10, 20]})
    place(catalog, "apes/big:1.1.0", "/shared", {"train": [10, 20], "test": [5]}, content="")
    place(catalog, "apes/big:2.0.0", "/shared/inner", {"train": [1]})

    found = catalog.usage("apes")

    by_name = {str(each.reference): (each.num_bytes, each.num_shared_bytes) for each in found.versions}
    assert by_name == {"apes/big:1.0.0": (510, 510), "apes/big:1.1.0": (595, 510), "apes/big:2.0.0": (17, 0)}
    assert (found.total.num_files, found.total.num_bytes) == (4, 612)
    assert (found.datasets["apes/big"].num_bytes, found.locations["/shared"].num_bytes) == (612, 595)
    assert catalog.usage("apes/big:1.0.0").total.num_bytes == 510


def test_a_reference_chooses_versions(catalog: registry.Catalog) -> None:
    catalog.aliases.set("paper", "animals:1.0.0")

    def chosen(reference: str) -> list[str]:
        return [str(one.reference) for one in catalog.usage(reference).versions]

    assert chosen("animals") == ["animals:1.0.0", "animals:2.0.0"]
    assert chosen("animals:2.*") == ["animals:2.0.0"]
    assert chosen("animals@paper") == ["animals:1.0.0"]
    catalog.lifecycle.drop("animals:1.0.0", reason="private")
    assert chosen("animals:1.0.0") == ["animals:1.0.0"]
    with pytest.raises(VersionNotFoundError, match=r"^no version matches animals:3\.\*\n"):
        catalog.usage("animals:3.*")
    with pytest.raises(AliasNotFoundError):
        catalog.usage("animals@none")


@pytest.mark.parametrize("kind", ["disk", "bucket"])
def test_a_check_names_files_that_are_missing_or_of_another_size(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    data_dir = str(tmp_path / "data") if kind == "disk" else f"{request.getfixturevalue('bucket')}/data"
    with registry.connect(tmp_path / "catalog.db", data_dir=data_dir) as catalog:
        catalog.publish(prepare(tmp_path / "one", shards=3))
        (sound,) = catalog.usage(check=True).stored
        assert (sound.num_files, sound.num_faults) == (7, 0)
        assert sound.num_bytes > catalog.usage().total.num_bytes

        store, names = open_store(f"{data_dir}/animals/1.0.0"), catalog.dataset("animals").splits["train"].filenames
        store.remove(names[0])
        store.write_bytes(names[1], b"short", overwrite=True)
        store.write_bytes("notes.txt", b"12345")
        (found,) = catalog.usage(check=True).stored
        assert found.missing == (f"{found.location}/{names[0]}",)
        assert found.differing == (f"{found.location}/{names[1]}",)
        assert (found.num_faults, found.num_files) == (2, 7)
        assert [str(one) for one in found.references] == ["animals:1.0.0"]


def test_a_location_that_cannot_be_listed_does_not_end_the_check(
    tmp_path: Path, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = f"{bucket}/data"
    with registry.connect(tmp_path / "catalog.db", data_dir=data_dir) as catalog:
        for number, age in (("1.0.0", 0), ("2.0.0", 70), ("3.0.0", 90)):
            catalog.publish(prepare(tmp_path / number, number, {"train": animals(30, age=age)}))
        put(data_dir, "animals/1.0.0//x")
        open_store(f"{data_dir}/animals/2.0.0").remove(catalog.dataset("animals:2.0.0").splits["train"].filename(0))
        place(catalog, "apes/big:1.0.0", "s3://no-such-bucket-here/apes", {"train": [10]})

        gone, unlisted, damaged, sound = catalog.usage(check=True).stored

        assert unlisted.error.message == (
            f"these names are invalid, so other files in their folders cannot be listed: {data_dir}/animals/1.0.0//x"
        )
        assert (unlisted.num_faults, damaged.num_faults, damaged.error, sound.num_faults) == (0, 1, None, 0)
        assert gone.error is not None
    options = ["--catalog", str(tmp_path / "catalog.db"), "--data-dir", data_dir]
    assert run(["du", "--check", *options]) == 5
    out = capsys.readouterr().out
    assert "4 versions, 7 files" in out
    assert f"{data_dir}/animals/1.0.0 could not be checked: these names are invalid" in out
    assert "s3://no-such-bucket-here/apes could not be checked: " in out
    assert run(["du", "animals:1.0.0", "--check", *options]) == StorageError.exit_code


def test_without_a_check_no_store_is_asked(catalog: registry.Catalog, fault_proxy: Any, bucket: str) -> None:
    place(catalog, "apes/big:1.0.0", f"{bucket}/apes", {"train": [10]})
    assert catalog.usage().total.num_versions == 3
    assert fault_proxy.count() == 0


def test_a_mirror_is_another_location_and_takes_space_too(catalog: registry.Catalog, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "data/animals/1.0.0", tmp_path / "mirror")
    catalog.mirrors.add("animals:1.0.0", tmp_path / "mirror")
    before = catalog.usage("animals:2.0.0").total.num_bytes

    found = catalog.usage("animals:1.0.0")

    assert [one.location for one in found.versions] == [str(tmp_path / "data/animals/1.0.0"), str(tmp_path / "mirror")]
    assert (found.total.num_versions, found.total.num_files) == (1, 5)
    assert found.total.num_bytes == sizes(tmp_path / "mirror") + sizes(tmp_path / "data/animals/1.0.0") - sum(
        attachment.num_bytes for attachment in catalog.dataset("animals:1.0.0").attachments
    )
    catalog.mirrors.remove("animals:1.0.0", tmp_path / "data/animals/1.0.0")
    assert [one.location for one in catalog.usage("animals:1.0.0").versions] == [str(tmp_path / "mirror")]
    assert catalog.usage("animals:2.0.0").total.num_bytes == before


def test_a_place_that_cannot_be_opened_here_is_counted_and_collected_around(
    catalog: registry.Catalog, tmp_path: Path
) -> None:
    place(catalog, "apes/big:1.0.0", "nosuch://host/apes", {"train": [10]})
    place(catalog, "apes/big:2.0.0", "linked/2.0.0", {"train": [10]}, content="other")
    (tmp_path / "outside/2.0.0/incomplete.0a1b2c3d_x").mkdir(parents=True)
    (tmp_path / "data/linked").symlink_to(tmp_path / "outside")

    found = catalog.usage("apes")

    assert [one.location for one in found.versions] == ["nosuch://host/apes", "linked/2.0.0"]
    assert found.total.num_bytes == 340
    checked = {one.location: one for one in catalog.usage(check=True).stored}
    assert sorted(place for place, one in checked.items() if one.error is None) == [
        str(tmp_path / "data/animals/1.0.0"),
        str(tmp_path / "data/animals/2.0.0"),
    ]
    assert isinstance(checked.pop("nosuch://host/apes").error, StorageError)
    assert isinstance(checked.pop("linked/2.0.0").error, StorageError)
    assert not any(one.num_faults or one.error for one in checked.values())
    catalog.collect_garbage(older_than="0s").require_all()
    assert (tmp_path / "outside/2.0.0/incomplete.0a1b2c3d_x").exists()
