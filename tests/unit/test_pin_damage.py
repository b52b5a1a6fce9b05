"""Which records of a pinned file are damaged: no more of them are looked at than were pinned."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from registry.pins import verify
from registry.pins.verify import find_damaged
from registry.storage import open_store
from registry.tfrecord import frame_record


@pytest.mark.parametrize("promised", [0, 1, 1024, 3000])
def test_records_after_the_promised_ones_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, promised: int
) -> None:
    (tmp_path / "shard").write_bytes(gzip.compress(frame_record(b"") * 100_000))
    read: list[int] = []
    opened = verify.open_shard

    def open_counted(*args: object, **options: object) -> object:
        shard = opened(*args, **options)  # type: ignore[arg-type]

        class Counted:
            def read(self, first: int, count: int) -> object:
                read.append(count)
                return shard.read(first, count)

        return Counted()

    monkeypatch.setattr(verify, "open_shard", open_counted)
    assert list(find_damaged(open_store(tmp_path), "shard", num_records=promised)) == []
    assert sum(read) == promised
