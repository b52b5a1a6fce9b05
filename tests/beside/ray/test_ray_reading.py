"""A reader as a Ray dataset: exact counts, rows in its order, its errors. And ranks that share a read and resume."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.framework_samples import FEATURES, plain, wide_reader
from support.ray_builders import Pieced
from support.ray_clusters import session_files_with

import registry
from registry import ReadConfig
from registry.errors import CorruptRecordError, MissingExtraError, NotStoredError, UsageError
from registry.features import FeaturesDict, RawFeature
from registry.reading import Reader

NUM_EXAMPLES = 3_000

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # Ray Data warns of its own settings


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Catalog]:
    """The version ``pieced``: 3,000 examples in three files. Tests must not change it."""
    with registry.connect(tmp_path_factory.mktemp("reading") / "catalog.db") as opened:
        opened.build(Pieced, processes=1)
        yield opened


@pytest.fixture
def data(connected: Any) -> Iterator[Any]:
    """``ray.data``, with rows in the order of the tasks, and few messages."""
    from ray.data import DataContext

    context = DataContext.get_current()
    before = context.execution_options.preserve_order, context.enable_progress_bars
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    yield connected.data
    context.execution_options.preserve_order, context.enable_progress_bars = before


def table_of(connected: Any, dataset: Any) -> pa.Table:
    return pa.concat_tables(connected.get(dataset.to_arrow_refs()))


def rows_of(reader: Reader, epoch: int = 0) -> list[Any]:
    """The examples of an epoch, read here, as plain values."""
    again = reader.reopened()
    again.seek(epoch)
    return [plain(example, texts=True) for example in again]


def shards_in(folder: Path) -> list[Path]:
    found = sorted((folder / "datasets").rglob("pieced-train.tfrecord-*"))
    assert len(found) == 3
    return found


def own_version(folder: Path) -> registry.Catalog:
    catalog = registry.connect(folder / "catalog.db", create=True)
    catalog.build(Pieced, processes=1)
    return catalog


def test_rows_are_counted_and_described_without_a_file(data: Any, tmp_path: Path) -> None:
    with own_version(tmp_path) as catalog:
        pieced = catalog.dataset("pieced")
        expected = pieced.read("train").to_arrow_batches(labels="numbers", decode=True).schema
        for path in shards_in(tmp_path):
            path.unlink()
        for split, count in (("train", 3000), ("train[10%:57%]", 1410), ("train[:5]+train[7:]", 2998)):
            found = pieced.to_ray(split)
            assert found.count() == count
            assert found.schema().base_schema == expected
        assert pieced.read("train", process=(1, 7)).to_ray().count() == 429
        with pytest.raises(NotStoredError):
            pieced.to_ray("train").materialize()


ORDERS: list[tuple[str, ReadConfig | None, int, tuple[int, int]]] = [
    ("train", None, 0, (0, 1)),
    ("train[10%:57%]", None, 0, (0, 1)),
    ("train[:5]+train[-7:]", ReadConfig(interleave_cycle_length=1), 0, (0, 1)),
    ("train", ReadConfig(interleave_cycle_length=2, interleave_block_length=3, add_tfds_id=True), 0, (0, 1)),
    ("train[10%:57%]", ReadConfig(shuffle_files=True, shuffle_seed=3), 2, (0, 1)),
    ("train", ReadConfig(shuffle="global", seed=5), 0, (0, 1)),
    ("train[10%:57%]", ReadConfig(shuffle="global", seed=5, repeat=None), 1, (2, 3)),
]


@pytest.mark.parametrize(("split", "config", "epoch", "process"), ORDERS)
def test_rows_are_those_of_the_reader_in_its_order(
    data: Any,
    connected: Any,
    catalog: registry.Catalog,
    split: str,
    config: ReadConfig | None,
    epoch: int,
    process: tuple[int, int],
) -> None:
    reader = catalog.dataset("pieced").read(split, config, process=process)
    next(iter(reader))  # the place of the reader does not matter
    place = reader.state()
    found = table_of(connected, reader.to_ray(epoch=epoch, override_num_blocks=7))
    assert found.to_pylist() == rows_of(reader, epoch)
    assert reader.state() == place
    if process == (0, 1):
        same = catalog.dataset("pieced").to_ray(split, config, text="bytes", epoch=epoch, override_num_blocks=2)
        texts = [text.decode() for text in table_of(connected, same)["text"].to_pylist()]
        assert texts == found["text"].to_pylist()


def test_an_epoch_of_a_shuffle_without_a_seed_is_the_one_of_the_reader(
    data: Any, connected: Any, catalog: registry.Catalog
) -> None:
    reader = catalog.dataset("pieced").read("train", ReadConfig(shuffle="global"))
    found = table_of(connected, reader.to_ray(override_num_blocks=3)).to_pylist()
    assert found == rows_of(reader)
    assert found != rows_of(reader, 1)


def test_an_empty_split_has_a_schema(data: Any, connected: Any, catalog: registry.Catalog) -> None:
    found = catalog.dataset("pieced").to_ray("train[:0]")
    assert (found.count(), found.take_all(), found.schema().names) == (0, [], ["number", "text"])
    assert found.materialize().count() == 0


def test_every_kind_of_feature_has_the_type_of_arrow(data: Any, connected: Any, tmp_path: Path) -> None:
    reader = wide_reader([9, 0, 14], where=tmp_path)
    found = table_of(connected, reader.to_ray(override_num_blocks=5))
    assert found.schema == reader.to_arrow(labels="numbers", decode=True).schema
    assert set(found.column_names) == set(FEATURES)
    assert found.to_pylist() == reader.to_arrow(labels="numbers", decode=True).to_pylist()
    stored = table_of(connected, reader.select("name", "maybe").to_ray(text="bytes"))
    assert stored["name"].to_pylist() == [f"grün {n}".encode() for n in rows_ids(reader)]
    filled = reader.fill_missing({"maybe": -1}).select("maybe")
    assert table_of(connected, filled.to_ray()).to_pylist() == rows_of(filled)


def rows_ids(reader: Reader) -> list[int]:
    return [int(example["id"]) for example in reader.reopened()]


def test_a_batch_of_images_becomes_an_array_in_one_line(data: Any, tmp_path: Path) -> None:
    """The line of docs/distributed.md, also for a batch that begins within a block."""
    reader = wide_reader([9, 5], where=tmp_path).select("image")
    found = []
    for batch in reader.to_ray(override_num_blocks=2).iter_batches(batch_size=4, batch_format="pyarrow"):
        flat = batch["image"].combine_chunks().flatten().flatten().flatten()
        found.append(flat.to_numpy().reshape(-1, 2, 3, 1))
    assert [len(images) for images in found] == [4, 4, 4, 2]
    assert np.array_equal(np.concatenate(found), reader.to_numpy()["image"])


def test_a_task_whose_worker_dies_reads_its_rows_again(
    data: Any, connected: Any, catalog: registry.Catalog, tmp_path: Path
) -> None:
    folder = str(tmp_path)

    def die_once(batch: pa.Table) -> pa.Table:
        with suppress(FileExistsError):
            Path(folder, "died").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    reader = catalog.dataset("pieced").read("train", ReadConfig(shuffle="global", seed=4))
    found = reader.to_ray(override_num_blocks=6).map_batches(die_once, batch_format="pyarrow")
    assert table_of(connected, found).to_pylist() == rows_of(reader)
    assert Path(folder, "died").exists()


@pytest.mark.parametrize("number", [1, 4, 7, 3000])
def test_tasks_are_equal_ranges_of_positions(connected: Any, catalog: registry.Catalog, number: int) -> None:
    from registry.reading.frameworks.ray import ReaderDatasource

    reader = catalog.dataset("pieced").read("train[:20]" if number == 3000 else "train")
    source = ReaderDatasource(reader, text="str", epoch=0)
    tasks = source.get_read_tasks(number)
    sizes = [task.metadata.num_rows for task in tasks]
    assert len(tasks) == min(number, len(reader))  # never a task without rows
    assert sum(sizes) == len(reader)
    assert max(sizes) - min(sizes) <= 1
    assert sum(task.metadata.size_bytes for task in tasks) == source.estimate_inmemory_data_size()
    limited = source.get_read_tasks(number, per_task_row_limit=2)
    for task, size in zip(limited[:2], sizes, strict=False):
        assert sum(table.num_rows for table in task()) == task.metadata.num_rows == min(2, size)


def test_the_number_of_blocks_is_chosen_by_the_caller_and_by_size(data: Any, catalog: registry.Catalog) -> None:
    pieced = catalog.dataset("pieced")
    found = pieced.to_ray("train", override_num_blocks=7).materialize()
    assert found.num_blocks() == 7
    estimate = _source(pieced.read("train")).estimate_inmemory_data_size()
    assert found.size_bytes() / 2 < estimate < found.size_bytes() * 2


def test_sizes_are_estimated_before_they_are_read(data: Any, tmp_path: Path) -> None:
    reader = wide_reader([9, 5], where=tmp_path)
    assert _source(reader.select("image", "three")).estimate_inmemory_data_size() == 14 * (6 + 12)
    assert _source(reader.select("name")).estimate_inmemory_data_size() is None  # this split has no recorded size


def _source(reader: Reader) -> Any:
    from registry.reading.frameworks.ray import ReaderDatasource

    return ReaderDatasource(reader, text="str", epoch=0)


def test_a_large_version_is_read_in_pieces_of_at_most_128_mib(
    data: Any, catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray Data divides the estimated size: 3,000 rows of 4 MiB are at least 93 blocks."""
    monkeypatch.setattr("registry.reading.frameworks.ray._estimate_bytes", lambda *_: 4 * 2**20)
    asked: list[int] = []
    from registry.reading.frameworks import ray as module

    ask = module.ReaderDatasource.get_read_tasks

    def recorded(self: Any, parallelism: int, *more: Any, **options: Any) -> Any:
        asked.append(parallelism)
        return ask(self, parallelism, *more, **options)

    monkeypatch.setattr(module.ReaderDatasource, "get_read_tasks", recorded)
    catalog.dataset("pieced").to_ray("train")
    assert max(asked) >= 3000 * 4 // 128


def test_a_damaged_record_is_the_error_of_the_registry(data: Any, connected: Any, tmp_path: Path) -> None:
    with own_version(tmp_path) as catalog:
        path = shards_in(tmp_path)[1]
        content = bytearray(path.read_bytes())
        content[1000] ^= 1
        path.write_bytes(content)
        reader = catalog.dataset("pieced").read("train", ReadConfig(interleave_cycle_length=1))
        with pytest.raises(CorruptRecordError) as here:
            list(reader)
        for read in ("materialize", "take_all"):
            with pytest.raises(CorruptRecordError) as caught:
                getattr(reader.to_ray(override_num_blocks=5), read)()
            assert isinstance(caught.value, connected.exceptions.RayTaskError)
            assert path.name in str(caught.value)
            assert caught.value.details == here.value.details
            assert caught.value.hint == here.value.hint
            assert caught.value.cause.message == here.value.message
        length = len(reader) // 10
        good = catalog.dataset("pieced").read(f"train[:{length}]", ReadConfig(interleave_cycle_length=1))
        assert table_of(connected, good.to_ray()).num_rows == length  # other files are not read


def test_a_damaged_record_of_files_without_digests_is_named(data: Any, connected: Any, tmp_path: Path) -> None:
    reader = wide_reader([30, 30], where=tmp_path)
    path = sorted(tmp_path.glob("wide-train*"))[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError) as here:
        list(reader.reopened())
    with pytest.raises(CorruptRecordError) as caught:
        reader.to_ray(override_num_blocks=1).materialize()
    assert caught.value.details == here.value.details
    assert path.name in str(caught.value)


SECRET = "kept-to-itself-4712"  # noqa: S105 (the value that the test looks for)


def test_credentials_reach_tasks_and_nothing_that_ray_shows(
    data: Any,
    connected: Any,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The workers were started without the credentials and the endpoint of the bucket."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with registry.connect(tmp_path / "catalog.db", create=True, data_dir=f"{bucket}/data") as catalog:
        catalog.build(Pieced, processes=1)
        reader = catalog.dataset("pieced").read("train")
        expected = rows_of(reader)
        found = reader.to_ray(override_num_blocks=4)
        source = _source(reader)
    tasks = source.get_read_tasks(2)
    shown = [repr(one) for one in (source, found, *tasks, *(task.read_fn for task in tasks))]
    shown += [repr(vars(one)) for one in (*tasks, *(task.read_fn for task in tasks))]
    assert [text for text in shown if SECRET in text] == []
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    assert table_of(connected, found).to_pylist() == expected  # what was in the environment when it was created
    left = connected.get([connected.remote(lambda: dict(os.environ)).remote() for _ in range(8)])
    assert [one for one in left if endpoint in one.values() or SECRET in one.values()] == []
    assert session_files_with(SECRET, connected) == []
    captured = capfd.readouterr()
    assert SECRET not in captured.out + captured.err


def test_what_cannot_be_read_on_a_cluster_is_refused(
    connected: Any, catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="the files are in the memory of this process"):
        wide_reader([3]).to_ray()
    reader = catalog.dataset("pieced").read("train")
    own = RawFeature(class_name="my.Own", node={"pythonClassName": "my.Own"})
    unknown = Reader(reader.readable.with_features(FeaturesDict({"number": own})), reader.plan)
    with pytest.raises(UsageError, match="no feature of these examples has a type in Arrow"):
        unknown.to_ray()
    for options in ({"epoch": -1}, {"override_num_blocks": 0}, {"concurrency": 0}, {"text": "utf-8"}):
        with pytest.raises(UsageError):
            reader.to_ray(**options)
    local = ReadConfig(interleave_sort_fn=lambda files: files)
    with pytest.raises(UsageError, match="cannot be sent to another process"):
        catalog.dataset("pieced").to_ray("train", local)


@pytest.mark.parametrize(("package", "extra"), [("ray", "ray"), ("pyarrow", "arrow"), ("pandas", "pandas")])
def test_a_missing_package_is_named(
    catalog: registry.Catalog, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    reader = catalog.dataset("pieced").read("train")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError) as caught:
        reader.to_ray()
    assert str(caught.value) == f"a read into Ray Data needs the package {package!r}, which is not installed"
    assert f"shardbook[{extra}]" in str(caught.value.hint)


def test_ranks_share_a_read_and_fewer_of_them_resume_it(connected: Any, catalog: registry.Catalog) -> None:
    """Three ranks are actors. They are killed at different places, and two others read the rest."""
    reader = catalog.dataset("pieced").read("train", ReadConfig(shuffle="global", seed=8))

    class Rank:
        def __init__(self, whole: Reader, process: tuple[int, int], state: Any = None) -> None:
            self.reader = whole.reopened(process=process, state=state)
            self.examples = iter(self.reader)

        def read(self, count: int | None) -> tuple[list[Any], Any]:
            found = [(int(one["number"]), str(one["text"], "utf-8")) for one in islice(self.examples, count)]
            return found, self.reader.state()

    actor = connected.remote(num_cpus=0)(Rank)
    first = [actor.remote(reader, (index, 3)) for index in range(3)]
    done = connected.get([rank.read.remote(count) for rank, count in zip(first, (10, 300, 1000), strict=True)])
    for rank in first:
        connected.kill(rank)
    states = json.loads(json.dumps([state for _, state in done]))
    second = [actor.remote(reader, (index, 2), states) for index in range(2)]
    rest = connected.get([rank.read.remote(None) for rank in second])
    assert [len(rows) for rows, _ in done] == [10, 300, 1000]
    assert [len(rows) for rows, _ in rest] == [845, 845]
    expected = [(row["number"], row["text"]) for row in rows_of(reader)]
    assert len(expected) == NUM_EXAMPLES
    assert sorted(row for rows, _ in (*done, *rest) for row in rows) == sorted(expected)


def test_a_ray_train_job_resumes_after_a_failed_rank(connected: Any, catalog: registry.Catalog, tmp_path: Path) -> None:
    """Two ranks read in batches of 250. Rank 0 fails once; both continue after their last reports."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # the base of TorchTrainer

    reader = catalog.dataset("pieced").read("train", ReadConfig(shuffle="global", seed=8))

    def train(config: dict[str, Any]) -> None:
        import ray.train

        context = ray.train.get_context()
        rank, ranks = context.get_world_rank(), context.get_world_size()
        state = None
        saved = ray.train.get_checkpoint()
        if saved is not None:
            with saved.as_directory() as folder:
                state = json.loads((Path(folder) / f"reader-{rank}.json").read_text())
        mine = config["reader"].reopened(process=(rank, ranks), state=state)
        seen = []
        for step, batch in enumerate(mine.batches(250)):
            if saved is None and rank == 0 and step == 2:
                while not Path(config["seen"], "1-first-2.json").exists():  # both ranks have reported step 1
                    time.sleep(0.05)
                raise RuntimeError("a rank that fails")
            seen.append([(int(n), str(t, "utf-8")) for n, t in zip(batch["number"], batch["text"], strict=True)])
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / f"reader-{rank}.json").write_text(json.dumps(mine.state()))
                ray.train.report({"step": step}, checkpoint=ray.train.Checkpoint.from_directory(folder))
            name = f"{rank}-{'first' if saved is None else 'second'}-{len(seen)}.json"
            Path(config["seen"], name).write_text(json.dumps(seen))

    seen = tmp_path / "seen"
    seen.mkdir()
    result = DataParallelTrainer(
        train,
        train_loop_config={"reader": reader, "seen": str(seen)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=str(tmp_path / "runs"), name="job", failure_config=FailureConfig(max_failures=1)
        ),
    ).fit()
    assert result.error is None
    numbers = {"first": (1, 2), "second": (1, 2, 3, 4)}  # a file after each report
    names = [f"{rank}-{run}-{number}.json" for rank in range(2) for run in numbers for number in numbers[run]]
    assert sorted(path.name for path in seen.iterdir()) == names
    last = [seen / f"{rank}-{run}-{numbers[run][-1]}.json" for rank in range(2) for run in numbers]
    rows = [tuple(row) for path in last for batch in json.loads(path.read_text()) for row in batch]
    assert sorted(rows) == sorted((row["number"], row["text"]) for row in rows_of(reader))
    shutil.rmtree(tmp_path / "runs")
