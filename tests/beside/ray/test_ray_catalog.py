"""Work of a catalog on a Ray cluster gives the same bytes and the same results as on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.ray_builders import FewLarge

import registry
from registry.engines import choice
from registry.engines.ray.connection import Connection
from registry.features import FeaturesDict, Scalar, Tensor, Text

NUM_EXAMPLES = 3_000


class Squares(registry.DatasetBuilder):
    """A plain generator of examples of arrays and texts."""

    VERSION = "1.0.0"
    NUM_SHARDS = 3

    def features(self) -> Any:
        return FeaturesDict(
            {"number": Scalar(np.int64), "square": Tensor(shape=(4,), dtype=np.float32), "text": Text()}
        )

    def splits(self) -> Any:
        return {"train": self.examples(NUM_EXAMPLES), "test": self.examples(100)}

    def examples(self, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(count):
            square = np.full(4, number * number, np.float32)
            yield f"key{number}", {"number": number, "square": square, "text": "x" * (number % 50)}


@pytest.fixture
def on_cluster(connected: Any, done_on_cluster: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What pieces did on the cluster, in a block with the engine ray. Little work goes there, too."""
    monkeypatch.setattr(choice, "_SMALL_BYTES", 0)
    monkeypatch.setattr(choice, "_TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(choice, "_SLOW_SECONDS", 0.0)
    with registry.use_engine("ray"):
        yield done_on_cluster


def shards(catalog: registry.Catalog, name: str) -> dict[str, list[str]]:
    dataset = catalog.dataset(name)
    return {split: [shard.sha256 for shard in dataset.shards(split)] for split in dataset.splits}


def test_a_build_verification_and_pins_are_the_same_as_here(on_cluster: list[str], tmp_path: Path) -> None:
    with (
        registry.connect(tmp_path / "here.db", create=True) as here,
        registry.connect(tmp_path / "ray.db", create=True) as there,
    ):
        with registry.use_engine("local"):
            here.build(Squares, processes=1)
            expected = here.dataset("squares").verify(deep=True)
            pin = here.dataset("squares").pin({"half": "train[:50%]"})["half"]
        assert on_cluster == []
        there.build(Squares)
        assert on_cluster.count("encoded examples") > 1
        assert shards(there, "squares") == shards(here, "squares")
        assert sum(map(len, shards(there, "squares").values())) == 6
        on_cluster.clear()
        assert there.dataset("squares").verify(deep=True) == expected
        assert on_cluster == ["verified files"] * 6
        on_cluster.clear()
        found = there.dataset("squares").pin({"half": "train[:50%]"})["half"]
        assert on_cluster.count("hashed records") > 1
        assert found.entry.records == pin.entry.records
        assert there.dataset("squares").verify(processes=2).num_examples == NUM_EXAMPLES + 100


def test_added_rows_are_the_same_as_here(on_cluster: list[str], tmp_path: Path) -> None:
    lines = "".join(f"{number},{number * 0.5},word {number}\n" for number in range(20_000))
    (tmp_path / "prices.csv").write_text(f"id,price,name\n{lines}")
    found = []
    for engine in ("local", "ray"):
        with registry.connect(tmp_path / f"{engine}.db", create=True) as catalog, registry.use_engine(engine):
            catalog.add(tmp_path / "prices.csv", processes=2)
            found.append(shards(catalog, "prices"))
    assert found[0] == found[1]
    assert on_cluster.count("encoded rows") > 1


def test_all_versions_are_verified_on_the_cluster(on_cluster: list[str], tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(Squares, processes=1)
        catalog.build("digits", processes=1)
        on_cluster.clear()
        assert [one.is_sound for one in catalog.verify_all(processes=2)] == [True, True]
    assert on_cluster == ["verified files"] * 10


def test_a_damaged_shard_is_found_on_the_cluster(on_cluster: list[str], tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db", create=True) as catalog:
        catalog.build(Squares, processes=2)
        path = next((tmp_path / "datasets").rglob("squares-train*00001-of*"))
        content = bytearray(path.read_bytes())
        content[1000] ^= 1
        path.write_bytes(content)
        on_cluster.clear()
        found = catalog.dataset("squares").verify()
        assert [(fault.split, fault.filename) for fault in found.faults] == [("train", path.name)]
        assert on_cluster == ["verified files"] * 6


def test_publications_imports_and_checks_of_pins_are_the_same_as_here(on_cluster: list[str], tmp_path: Path) -> None:
    with (
        registry.connect(tmp_path / "source.db", create=True, data_dir=tmp_path / "source") as source,
        registry.use_engine("local"),
    ):
        source.build(Squares)
        folder = source.dataset("squares").folder
        source.dataset("squares").export("parquet", tmp_path / "typed")
    found = []
    for engine in ("local", "ray"):
        with (
            registry.use_engine(engine),
            registry.connect(
                tmp_path / f"{engine} publish.db", create=True, data_dir=tmp_path / engine / "publish"
            ) as published,
            registry.connect(
                tmp_path / f"{engine} import.db", create=True, data_dir=tmp_path / engine / "import"
            ) as imported,
        ):
            published.publish(folder)
            (copied,) = imported.import_tfds(folder, copy=True)
            imported.import_parquet(tmp_path / "typed", name="typed")
            pins = published.dataset("squares").pin({"part": "train[10%:60%]", "test": "test"})
            files = [shards(published, "squares"), shards(imported, "squares"), shards(imported, "typed")]
            found.append((files, copied.outcome, [pin.verify().faults for pin in pins.values()], pins))
            if engine == "local":
                assert on_cluster == []
    assert found[0][:3] == found[1][:3]
    assert found[0][2] == [(), ()]
    assert [pin.entry.records for pin in found[0][3].values()] == [pin.entry.records for pin in found[1][3].values()]
    assert {"verified files", "hashed records"} <= set(on_cluster)


def test_a_copy_between_buckets_is_sent_from_the_cluster(bucket: str, on_cluster: list[str], tmp_path: Path) -> None:
    with (
        registry.connect(tmp_path / "one.db", create=True, data_dir=f"{bucket}/one") as first,
        registry.connect(tmp_path / "two.db", create=True, data_dir=f"{bucket}/two") as second,
    ):
        with registry.use_engine("local"):
            first.build(Squares)
        first.copy("squares", second).require_all()
        assert on_cluster.count("uploaded files") == 6
        assert shards(second, "squares") == shards(first, "squares")
        assert not second.dataset("squares").verify().faults


@pytest.mark.parametrize(("start", "end"), [("disk", "disk"), ("bucket", "disk"), ("disk", "bucket")])
def test_a_copy_is_sent_from_the_cluster_if_all_nodes_can_read_both_places(
    start: str, end: str, bucket: str, on_cluster: list[str], tmp_path: Path
) -> None:
    places = {"disk": tmp_path / "shared", "bucket": bucket}
    with (
        registry.connect(tmp_path / "one.db", create=True, data_dir=f"{places[start]}/one") as first,
        registry.connect(tmp_path / "two.db", create=True, data_dir=f"{places[end]}/two") as second,
    ):
        with registry.use_engine("local"):
            first.build(Squares)
        seen: list[registry.Progress] = []
        first.copy("squares", second, progress=seen.append).require_all()
        assert on_cluster.count("copied files" if end == "disk" else "uploaded files") == 6
        assert shards(second, "squares") == shards(first, "squares")
        assert not second.dataset("squares").verify().faults
        assert (seen[-1].stage, seen[-1].fraction) == ("copying", 1.0)
        if end == "disk":
            version = tmp_path / "shared/two/squares/1.0.0"
            assert list(version.parent.iterdir()) == [version]
            lost = sorted(version.glob("squares-train*"))
            for path in lost:
                path.unlink()
            on_cluster.clear()
            first.copy("squares", second).require_all()
            assert (on_cluster.count("compared files"), on_cluster.count("copied files")) == (3, 3)
            assert sorted(version.glob("squares-train*")) == lost
            assert not second.dataset("squares").verify().faults


def test_a_copy_stays_here_if_nodes_cannot_read_a_folder(
    bucket: str,
    other_machines: None,
    on_cluster: list[str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        registry.connect(tmp_path / "one.db", create=True, data_dir=tmp_path / "one") as first,
        registry.connect(tmp_path / "two.db", create=True, data_dir=f"{bucket}/two") as second,
        registry.connect(tmp_path / "three.db", create=True, data_dir=tmp_path / "three") as third,
    ):
        with registry.use_engine("local"):
            first.build(Squares)
        first.copy("squares", second).require_all()
        second.copy("squares", third).require_all()
        assert shards(third, "squares") == shards(second, "squares") == shards(first, "squares")
    assert on_cluster == []
    warned = [one for one in caplog.messages if "cannot read" in one]
    assert [one.rpartition("file://")[2] for one in warned] == [f"{first.data_dir}/squares/1.0.0", third.data_dir]


@pytest.fixture
def other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node but this machine can read its folders, as in a cluster of several machines."""
    monkeypatch.setattr(Connection, "can_list", lambda _connection, _folder: False)


def test_a_build_for_a_bucket_is_verified_where_other_machines_read_the_bucket(
    bucket: str, other_machines: None, on_cluster: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with registry.connect(tmp_path / "here.db", create=True) as here, registry.use_engine("local"):
        here.build(FewLarge)
    with registry.connect(tmp_path / "there.db", create=True, data_dir=f"{bucket}/data") as there:
        seen: list[registry.Progress] = []
        there.build(FewLarge, progress=seen.append)
        last = seen[-1]
        assert (last.stage, last.unit, last.fraction, last.tasks.running) == ("uploading", "bytes", 1.0, 0)
        assert last.tasks.done == last.tasks.total
        assert [on_cluster.count(one) for one in ("wrote shards", "verified files", "uploaded files")] == [3, 3, 3]
        assert shards(there, "few_large") == shards(here, "few_large")
        on_cluster.clear()
        preview = there.preview_build(FewLarge, rebuild=True)
        assert preview.is_published
        assert on_cluster.count("verified files") == 3
        assert on_cluster.count("read records") > 1
    assert [one for one in caplog.messages if "on this machine" in one] == []


def test_what_a_program_uploaded_before_it_died_is_compared_on_the_cluster(
    bucket: str,
    other_machines: None,
    on_cluster: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def die(*_: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with registry.connect(tmp_path / "catalog.db", create=True, data_dir=f"{bucket}/data") as catalog:
        with monkeypatch.context() as patched:
            patched.setattr(type(catalog.backend), "publish", die)
            with pytest.raises(KeyboardInterrupt):
                catalog.build(FewLarge)
        on_cluster.clear()
        with pytest.warns(registry.errors.RegistryWarning, match="the records are made again"):
            publication = catalog.build(FewLarge)
        num_files = 3 + 2 + 1  # the shards, two descriptions and the statistics
        assert [on_cluster.count(one) for one in ("compared files", "uploaded files")] == [num_files, 0]
        assert publication.notes == (
            f"finished an earlier run: {num_files} of {num_files} files were already in place",
        )
        found = shards(catalog, "few_large")["train"]
        tags = [shard.entity_tag for shard in catalog.dataset("few_large").shards("train")]
        assert len(set(tags)) == len(found) == 3
        assert None not in tags
        assert not catalog.dataset("few_large").verify().faults


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-m", "registry", *arguments], capture_output=True, text=True, env=variables, check=False
    )


def test_the_command_line_chooses_the_cluster(cluster: Any, tmp_path: Path) -> None:
    place = {"REGISTRY_CATALOG": str(tmp_path / "catalog.db")}
    assert command("build", "digits", **place).returncode == 0
    here = command("verify", "digits", "--deep", "--format", "json", **place)
    there = command(
        *("verify", "digits", "--deep", "-j", "2", "--engine", "ray", "--address", cluster.address), **place
    )
    lines = [line for line in there.stderr.splitlines() if not line.startswith("(raylet")]  # of a busy node
    assert lines == ["note: verifying digits on Ray, with 4 CPUs on 2 nodes, 2 pieces at a time"]
    assert there.stdout == command("verify", "digits", "--deep", **place).stdout
    by_variable = command(
        *("verify", "digits", "--deep", "-j", "2", "--format", "json"),
        **place,
        REGISTRY_ENGINE="ray",
        RAY_ADDRESS=cluster.address,
    )
    assert json.loads(by_variable.stdout)["data"] == json.loads(here.stdout)["data"]
    assert json.loads(by_variable.stdout)["warnings"] == [
        "note: verifying digits on Ray, with 4 CPUs on 2 nodes, 2 pieces at a time"
    ]
