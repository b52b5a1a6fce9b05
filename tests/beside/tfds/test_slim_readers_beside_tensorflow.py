"""Compares keys and records of our readers with those of TensorFlow's own file readers."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.slim import TextLineReader, TFRecordReader, prefetch_queue
from registry.tfrecord import frame_record

pytestmark = pytest.mark.tfds
RECORDS = [b"", b"one", b"x" * 70_000, *(b"%d" % number for number in range(300))]


def read_by_tensorflow(tf: Any, make_reader: Any, path: Path) -> list[tuple[bytes, bytes]]:
    """The records of a TensorFlow reader, which works only in graphs."""
    found = []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        names = tf.compat.v1.FIFOQueue(1, tf.string, shapes=())
        session.run(names.enqueue(str(path)))
        session.run(names.close())
        pair = make_reader().read(names)
        try:
            while True:
                found.append(tuple(session.run(pair)))
        except tf.errors.OutOfRangeError:
            return found


@pytest.mark.parametrize("compression", [None, "GZIP", ""])
def test_keys_of_records_are_tensorflow_s(tf: Any, tmp_path: Path, compression: str | None) -> None:
    content = b"".join(map(frame_record, RECORDS))
    path = tmp_path / "shard"
    path.write_bytes(gzip.compress(content) if compression == "GZIP" else content)
    options = None if compression is None else tf.io.TFRecordOptions(compression)
    expected = read_by_tensorflow(tf, lambda: tf.compat.v1.TFRecordReader(options=options), path)
    assert list(TFRecordReader(path, options)) == expected
    assert list(TFRecordReader(path)) == expected


@pytest.mark.parametrize("skip", [0, 1, 3])
@pytest.mark.parametrize(
    "text", [b"a\nb\n", b"a\r\nb\n\n  c \nlast", b"\n\n\n", b"", b"no end", b"in\rside\r\n\xff\xfe\n"]
)
def test_keys_of_lines_are_tensorflow_s(tf: Any, tmp_path: Path, text: bytes, skip: int) -> None:
    path = tmp_path / "lines"
    path.write_bytes(text)
    expected = read_by_tensorflow(tf, lambda: tf.compat.v1.TextLineReader(skip_header_lines=skip), path)
    assert list(TextLineReader(path, skip)) == expected


def test_batches_are_filled_up_as_tensorflow_does(tf: Any) -> None:
    arrays = [np.arange(number * 2, dtype=np.int64).reshape(number, 2) for number in (3, 1, 2)]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        queue = tf.compat.v1.PaddingFIFOQueue(3, tf.int64, shapes=[(None, 2)])
        for array in arrays:
            session.run(queue.enqueue(array))
        expected = session.run(queue.dequeue_many(3))
    found = prefetch_queue(iter(arrays), dynamic_pad=True).dequeue_many(3)
    assert found.tolist() == expected.tolist()
    assert found.dtype == expected.dtype
