"""Compares providers with those of TF-Slim: keys, values, exact orders, and ends. See PROVENANCE.md."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from support.slim_cases import GOLDEN

from registry import slim
from registry.errors import NotStoredError, OutOfRangeError, UsageError

RUNS = {run["name"]: run for run in GOLDEN["providers"]}
SOURCES = {
    "gzip_reader_kwargs": "z.tfrecord.gz",
    "gzip_without_kwargs": "z.tfrecord.gz",
    "glob": "shard-*.tfrecord",
    "glob_nothing": "nothing-*",
    "missing_file": "missing.tfrecord",
}
ONE_OF_SEVERAL_ORDERS = ("fifo_two_readers", "shuffle_one_epoch_seed", "glob")
REFUSED = ("record_key_conflict", "glob_nothing", "missing_file")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in GOLDEN["provider_files"].items():
        (tmp_path / name).write_bytes(base64.b64decode(content))


def provider_of(name: str) -> slim.DatasetDataProvider:
    decoder = slim.TFExampleDecoder({"a": slim.FixedLenFeature([], "int64")}, {"a": slim.Tensor("a")})
    sources = SOURCES.get(name, ["shard-0.tfrecord", "shard-1.tfrecord"])
    options: dict[str, Any] = {"reader_kwargs": {"options": "GZIP"}} if name == "gzip_reader_kwargs" else {}
    dataset = slim.Dataset(sources, slim.TFRecordReader, decoder, 6, {"a": "a number"})
    return slim.DatasetDataProvider(dataset, **RUNS[name]["kwargs"], **options)


def provided(name: str, *, most: int) -> tuple[list[list[Any]], str | None]:
    """The records of a provider, at most ``most``, and how it ended."""
    got: list[list[Any]] = []
    with provider_of(name) as provider:
        assert provider.list_items() == RUNS[name]["list_items"]
        assert provider.num_samples() == RUNS[name]["num_samples"]
        try:
            while len(got) < most:
                key, value = provider.get(["record_key", "a"])
                got.append([key.decode(), value.item()])
        except OutOfRangeError as end:
            return got, type(end).__name__
    return got, None


@pytest.mark.parametrize(
    "name", [name for name in RUNS if name not in {*REFUSED, "single_pass", "gzip_without_kwargs"}]
)
def test_records_are_provided_as_tf_slim_does(name: str) -> None:
    run = RUNS[name]
    got, end = provided(name, most=len(run["got"]) + (run["end"] is not None))
    if name in ONE_OF_SEVERAL_ORDERS:
        got, run = sorted(got), {**run, "got": sorted(run["got"])}
    assert got == run["got"]
    assert end == run["end"]


def test_a_single_pass_reads_each_file_from_start_to_end() -> None:
    decoder = slim.TFExampleDecoder({"a": slim.FixedLenFeature([], "int64")}, {"a": slim.Tensor("a")})
    records = slim.single_pass_read(["shard-0.tfrecord", "shard-1.tfrecord"], slim.TFRecordReader)
    got = [[key.decode(), decoder.decode(record)[0].item()] for key, record in records]
    assert got == RUNS["single_pass"]["got"]


def test_globs_are_sorted_although_tf_slim_leaves_their_order_open() -> None:
    got, _ = provided("glob", most=7)
    assert [key for key, _ in got] == [f"shard-{shard}.tfrecord:{offset}" for shard in (0, 1) for offset in (0, 30, 60)]


def test_gzip_is_read_although_tf_slim_ends_without_a_record() -> None:
    assert RUNS["gzip_without_kwargs"]["got"] == []
    got, end = provided("gzip_without_kwargs", most=7)
    assert (got, end) == (RUNS["gzip_reader_kwargs"]["got"], "OutOfRangeError")


def test_what_tf_slim_refuses_is_refused_and_a_missing_file_too() -> None:
    with pytest.raises(UsageError, match=r"^record_key='a' is already an item of the dataset(?m:$)"):
        provider_of("record_key_conflict")
    with pytest.raises(UsageError, match=r"^no data files found in nothing-\*(?m:$)"):
        provider_of("glob_nothing")
    assert RUNS["missing_file"]["end"] == "OutOfRangeError"
    with pytest.raises(NotStoredError, match=r"^no such data file: missing.tfrecord(?m:$)"):
        provider_of("missing_file")
