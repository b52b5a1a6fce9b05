"""Converts a reader for other frameworks, with a module for each. A framework is imported when its method is called.

arrays: all examples as NumPy arrays, which the other modules build on
leaf_arrays, table_columns, tables: Arrow, and by it pandas, polars and DuckDB
torch, torch_batches, tensorflow: datasets for their own loaders
ray: a source of Ray Data, read by tasks on a cluster
sharing: a reader for several threads and processes, with a count of epochs; also Grain's source
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from registry.errors import UsageError, require_extra
from registry.model import whole_number

if TYPE_CHECKING:
    import ray.data
    import tensorflow as tf

    from registry.prepared.info import SupervisedKeys
    from registry.reading.examples import ExampleReader
    from registry.reading.frameworks.arrays import TextForm
    from registry.reading.frameworks.torch import ReaderDataset, ReaderIterable


def read_torch(
    reader: ExampleReader,
    keys: SupervisedKeys | None,
    *,
    iterable: bool,
    batch_size: int | None,
    drop_remainder: bool,
    process: tuple[int, int] | None,
    transform: Callable[[Any], Any] | None,
    pad: Mapping[str, float | None] | None,
) -> ReaderDataset | ReaderIterable:
    """The dataset of ``Reader.to_torch``, or of ``SupervisedReader.to_torch`` if there are ``keys``."""
    with require_extra("torch", package="torch", needed_for="a read into torch"):
        from registry.reading.frameworks.torch import ExampleForm, ReaderDataset, ReaderIterable

    form = ExampleForm(reader.features, keys=keys, transform=transform, pad=pad)
    if iterable:
        check_batches(batch_size, drop_remainder=drop_remainder)
        return ReaderIterable(reader, form, batch_size=batch_size, drop_remainder=drop_remainder, process=process)
    if batch_size is not None or drop_remainder or process is not None:
        raise UsageError(
            "batch_size, drop_remainder and process are options of iterable=True",
            hint="For a map-style dataset, pass them to the loader: DataLoader(dataset, batch_size=32, "
            "collate_fn=dataset.collate), and use a DistributedSampler for ranks.",
        )
    return ReaderDataset(reader, form)


def read_tensorflow(reader: ExampleReader, *, batch_size: int | None, drop_remainder: bool) -> tf.data.Dataset:
    """The dataset of ``Reader.to_tf_dataset``."""
    check_batches(batch_size, drop_remainder=drop_remainder)
    with require_extra("tensorflow", package="tensorflow", needed_for="a read into tensorflow"):
        from registry.reading.frameworks.tensorflow import read_dataset
    return read_dataset(reader, batch_size=batch_size, drop_remainder=drop_remainder)


def read_ray(
    reader: ExampleReader, *, text: TextForm, epoch: int, num_blocks: int | None, concurrency: int | None
) -> ray.data.Dataset:
    """The dataset of ``Reader.to_ray``."""
    epoch = whole_number(epoch, "epoch", least=0)
    if num_blocks is not None:
        num_blocks = whole_number(num_blocks, "override_num_blocks", least=1)
    if concurrency is not None:
        concurrency = whole_number(concurrency, "concurrency", least=1)
    for extra, package in (("ray", "ray"), ("arrow", "pyarrow"), ("pandas", "pandas")):  # Ray Data imports all of them
        with require_extra(extra, package=package, needed_for="a read into Ray Data"):
            import_module(package)
    from registry.reading.frameworks.ray import read_dataset

    return read_dataset(reader, text=text, epoch=epoch, num_blocks=num_blocks, concurrency=concurrency)


def check_batches(batch_size: int | None, *, drop_remainder: bool) -> None:
    """Refuse invalid options of batches.

    Raises:
        UsageError: ``batch_size`` is below 1, or ``drop_remainder`` has no ``batch_size``.
    """
    if batch_size is not None:
        whole_number(batch_size, "batch_size", least=1)
    if drop_remainder and batch_size is None:
        raise UsageError("drop_remainder requires batch_size, without which there are no batches")
