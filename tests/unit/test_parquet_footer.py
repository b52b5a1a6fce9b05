"""The footer of a Parquet file from a stranger: a worker process reads it first, so it never ends this process."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.golden import check_errors
from support.levels import either
from support.thrift_trees import Node, field, read_struct, write_struct
from support.warm_python import run

from registry.errors import ShardMismatchError
from registry.interop.parquet import describe_parquet
from registry.shards import isolated, open_shard, parquet_footer, walk_file
from registry.shards.parquet_footer import Footer, read_footer
from registry.storage import open_store

GOLDEN = Path(__file__).with_name("golden")


HINT = "The file is damaged or truncated. Fetch or build it again; `registry verify` names every bad shard."
CHANGES = """
import json, sys
from collections import Counter
from pathlib import Path

from registry.errors import RegistryError
from registry.interop.parquet import describe_parquet
from registry.shards import read_records, walk_file
from registry.storage import open_store

folder = Path(sys.argv[1])
path, store = folder / "train.parquet", open_store(folder)
sound = path.read_bytes()
start = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
told = Counter()
for place in range(start, len(sound), int(sys.argv[2])):
    damaged = bytearray(sound)
    damaged[place] ^= 2
    path.write_bytes(damaged)
    try:
        features = describe_parquet(store, name="some").features
        facts = walk_file(store, "train.parquet", file_format="parquet_columns")
        records = read_records(store, "train.parquet", file_format="parquet_columns", features=features)
        assert len(list(records)) == facts.num_records
        told["values"] += 1
    except RegistryError as error:
        told[error.code] += 1
print(json.dumps(told))
"""


def write_small(folder: Path) -> Path:
    """A file of some 800 bytes, with statistics."""
    path = folder / "train.parquet"
    table = pa.table({"id": [1, None, 3], "some": [["a"], [], ["b", "c"]]})
    parquet.write_table(table, path)
    assert 800 < path.stat().st_size < 1300
    return path


@pytest.mark.parametrize("step", either(5, 1))
def test_no_changed_byte_of_a_footer_ends_the_process(tmp_path: Path, record_property: Any, step: int) -> None:
    size = write_small(tmp_path).stat().st_size
    done = run([sys.executable, "-c", CHANGES, str(tmp_path), str(step)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    reported = json.loads(done.stdout)
    assert sum(reported.values()) > size // 2 // step
    assert set(reported) <= {"values", "shard_mismatch", "corrupt_record", "corrupt_example", "prepared_format"}, (
        reported
    )
    record_property("changed bytes of a footer that gave values or a typed error", sum(reported.values()))


def footer_of(path: Path, *, is_proved: bool = False) -> Footer:
    with open_store(path.parent).open(path.name) as file:
        return read_footer(file, is_local=True, is_proved=is_proved)


def test_files_are_read_by_one_worker_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_small(tmp_path)
    other = tmp_path / "other.parquet"
    parquet.write_table(pa.table({"x": [1.5, 2.5]}), other)
    before = footer_of(path), footer_of(other)
    assert len(isolated._workers()._idle) == 1
    monkeypatch.setattr(parquet_footer, "call_isolated", None)
    assert (footer_of(path), footer_of(other)) == before


def test_a_proved_file_starts_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_small(tmp_path)
    proved = replace(footer_of(path), unproved=None)
    path.touch()
    monkeypatch.setattr(parquet_footer, "call_isolated", None)
    assert footer_of(path, is_proved=True) == proved
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    facts = walk_file(open_store(tmp_path), "train.parquet", file_format="parquet_columns", sha256=sha256)
    assert (facts.num_records, facts.sha256) == (3, sha256)
    parquet.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(TypeError, match="not callable"):
        walk_file(open_store(tmp_path), "train.parquet", file_format="parquet_columns", sha256=sha256)


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    """The type of a column's pages differs from the schema's: pyarrow's ``.statistics`` would end the process."""
    path = write_small(tmp_path)

    def change(footer: Node) -> None:
        column(footer, 0)[1][0][1][1] = 5

    forge(path, change)
    with pytest.raises(ShardMismatchError) as refused:
        describe_parquet(open_store(tmp_path), name="some")
    assert str(refused.value) == f"{path}: not a parquet file, or a damaged one"
    assert refused.value.hint == HINT
    reason = "column 'id': expected type INT64, found DOUBLE"
    assert refused.value.details == {"path": str(path), "reason": reason}


def test_a_null_count_that_cannot_be_is_not_believed(tmp_path: Path) -> None:
    path = write_small(tmp_path)
    for claim in (-1, 4, 2**40):

        def change(footer: Node, claim: int = claim) -> None:
            statistics = field(column(footer, 0), 12)
            assert statistics is not None
            null_count = field(statistics, 3)
            assert null_count is not None
            null_count[1] = claim

        forge(path, change)
        assert footer_of(path).row_groups[0].columns[0].null_count is None
        assert "optional=True" in repr(describe_parquet(open_store(tmp_path), name="some").features["id"])


@pytest.mark.parametrize(
    ("numbers", "claim", "problem"),
    [
        ((3,), 2**40, "reason: expected 1099511627776 rows, its row groups have 3"),
        ((4, 0, 3), -1, "reason: num_rows is -1"),
        ((4, 0, 3), 2**40, "reason: column 'id': 3 values in 1099511627776 rows"),
        ((4, 0, 1, 0, 3, 5), 2**40, "reason: column 'id': 1099511627776 values in 3 rows"),
        ((4, 0, 1, 0, 3, 7), 2**40, "reason: column 'id': its pages end at byte {stop}, the footer is at {start}"),
        ((4, 0, 1, 0, 3, 6), 2**40, "its row group, records 0 to 2, takes {size} bytes, more than 2147483648"),
        (
            (4, 0, 1, 1, 3, 5),
            2**40,
            "its row group, records 0 to 2, holds 1099511627776 values of one column, more than 2147483648",
        ),
        ((2, 0, 5), 3, "reason: Malformed Parquet schema: not enough elements"),
        ((2, 0, 5), 1, "reason: Malformed Parquet schema: too many elements"),
        ((2, 1, 1), 8, "reason: Invalid physical column type: UNKNOWN"),
        ((2, 1, 3), 3, "reason: reading it ended the process that read it, with signal 6"),
    ],
)
def test_what_a_footer_claims_is_refused_before_this_process_asks_for_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...], claim: int, problem: str
) -> None:
    path = write_small(tmp_path)
    columns = footer_of(path).row_groups[0].columns

    def change(footer: Node) -> None:
        node = footer
        for number in numbers:
            found = node[1][number] if node[0] == "list" else field(node, number)
            assert found is not None
            node = found
        node[1] = claim

    start = forge(path, change)
    problem = problem.format(stop=columns[0].start + claim, start=start, size=claim + columns[1].num_bytes)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read_row_group", None)
    with pytest.raises(ShardMismatchError) as refused:
        open_shard(open_store(tmp_path), "train.parquet", file_format="parquet_columns")
    if problem.startswith("reason: "):
        assert refused.value.details["reason"] == problem.removeprefix("reason: ")
    else:
        assert str(refused.value) == f"{path}: {problem}"


def test_an_invalid_footer_is_named(tmp_path: Path) -> None:
    def walk(content: bytes) -> None:
        (tmp_path / "train.parquet").write_bytes(content)
        walk_file(open_store(tmp_path), "train.parquet", file_format="parquet_columns")

    contents = [b"", b"PAR1PAR1", b"PAR1" + bytes(8), b"PAR1" + bytes(4) + b"PARE"]
    contents.append(b"PAR1" + (2**31).to_bytes(4, "little") + b"PAR1")
    calls = (partial(walk, content) for content in contents)
    check_errors(GOLDEN / "parquet_footer.txt", calls, details=["reason"], folder=tmp_path)


def test_a_footer_that_is_larger_than_any_is_refused_unread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write_small(tmp_path)
    monkeypatch.setattr(parquet_footer, "_MOST_BYTES", 100)
    with pytest.raises(ShardMismatchError) as refused:
        walk_file(open_store(tmp_path), "train.parquet", file_format="parquet_columns")
    length = int.from_bytes(path.read_bytes()[-8:-4], "little")
    assert refused.value.details["reason"] == f"its footer has {length} bytes, more than 100"


def test_a_footer_longer_than_the_first_look_is_read_whole(tmp_path: Path) -> None:
    table = pa.table({f"column_{place:04}": [place] for place in range(1500)})
    parquet.write_table(table, tmp_path / "train.parquet")
    found = footer_of(tmp_path / "train.parquet")
    assert len(found.content) > 2**16
    assert found.num_columns == 1500
    reported = parquet.read_metadata(tmp_path / "train.parquet")
    for place in (0, 700, 1499):
        expected = reported.row_group(0).column(place)
        column = found.row_groups[0].columns[place]
        assert column.num_values == expected.num_values
        assert column.num_bytes == expected.total_uncompressed_size
        assert column.stop - column.start == expected.total_compressed_size
        assert column.null_count == expected.statistics.null_count


def column(footer: Node, place: int) -> Node:
    """The metadata of a column of the first row group."""
    groups = field(footer, 4)
    chunks = field(groups[1][0], 1)
    found = field(chunks[1][place], 3)
    assert found is not None
    return found


def forge(path: Path, change: Any) -> int:
    """Write the file with a footer changed by ``change``; return the offset of the footer."""
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer, _ = read_struct(content, start)
    change(footer)
    written = write_struct(footer)
    path.write_bytes(content[:start] + written + len(written).to_bytes(4, "little") + b"PAR1")
    return start
