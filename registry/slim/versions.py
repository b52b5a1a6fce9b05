"""Creates the parts of a TF-Slim dataset from a slice of a version: files from its plan, items from its features.

``Dataset.from_version`` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from registry.errors import WrongTypeError
from registry.features import ClassLabel, FeaturesDict, Leaf, LimitReader, codec_of
from registry.reading import Slice, SplitSource
from registry.slim.data_decoder import DataDecoder, as_block
from registry.slim.data_files import DataFile, PlannedFiles
from registry.tfrecord import RecordBlock


def open_slice(source: SplitSource, split: Any) -> Slice:
    """The slice of ``source`` for a split expression. Raises WrongTypeError if ``source`` is not a dataset or a pin."""
    if not isinstance(source, SplitSource):
        raise WrongTypeError(
            f"{source!r:.100} is not a dataset version",
            hint=f"Pass catalog.dataset({(source if isinstance(source, str) else 'digits')!r:.60}), "
            "registry.builder(...), or a pin.",
        )
    return source.slice_of(split)


def files_of(part: Slice) -> PlannedFiles:
    """The records of a slice, file by file."""
    readable = part.readable
    store = readable.files({split.name for split in part.plan.splits})
    return PlannedFiles(
        DataFile(
            store=store,
            filename=instruction.filename,
            skip=instruction.skip,
            take=instruction.take,
            num_records=instruction.examples_in_shard,
            file_format=readable.file_format,
            features=readable.features,
        )
        for instruction in part.plan
    )


class FeaturesDecoder(DataDecoder):
    """Decodes records by the features of a version. Each feature is an item, with the same value as ``Dataset.read``.

    Args:
        features: the schema.
    """

    def __init__(self, features: FeaturesDict) -> None:
        self._features = features
        self._some: dict[tuple[str, ...], FeaturesDict] = {}

    def decode(self, data: bytes, items: Sequence[str] | None = None) -> list[Any]:
        """The values of ``items`` in one record, in that order; of all features if ``items`` is None or empty.

        Raises:
            CorruptExampleError: the record does not hold the features.
            ItemNotFoundError: there is no such feature.
        """
        names = self.check_items(items)
        example = codec_of(self._features_of(names)).decode(data)
        return [example[name] for name in names]

    def list_items(self) -> list[str]:
        """The names of the features."""
        return list(self._features)

    def decode_rows(self, block: RecordBlock, items: Sequence[str]) -> Iterator[list[Any]]:
        """The result of ``decode`` for each record of a block, decoded together."""
        names = self.check_items(items)
        decoded = codec_of(self._features_of(names)).decode_block(block.data, block.offsets, block.lengths)
        for example in decoded.examples():
            yield [example[name] for name in names]

    def decode_batch(self, records: RecordBlock | Sequence[bytes], items: Sequence[str] | None = None) -> list[Any]:
        """``DataDecoder.decode_batch``, computed by columns if the values are arrays, numbers or texts."""
        names, block = self.check_items(items), as_block(records)
        if block.num_records:
            features = self._features_of(names)
            decoded = codec_of(features).decode_block(block.data, block.offsets, block.lengths)
            if decoded.fault is None:
                record = block.data[block.offsets[0] : block.offsets[0] + block.lengths[0]].tobytes()
                first, columns = codec_of(features).decode(record), decoded.columns()
                if all(isinstance(first[name], np.ndarray | np.generic | bytes | None) for name in names):
                    return [columns[name] for name in names]
        return super().decode_batch(block, names)

    def stack(self, item: str, values: list[Any]) -> npt.NDArray[Any]:
        """``DataDecoder.stack``; always a masked array for an optional feature, even if no value is missing."""
        feature = self._features[item]
        if not isinstance(feature, Leaf) or not feature.may_read_none:
            return super().stack(item, values)
        (column,) = codec_of(self._features_of([item])).columns
        return column.column_of(values).array(len(values))

    def limits(self) -> LimitReader:
        """The search for values that a feature does not allow."""
        return LimitReader(self._features)

    def _features_of(self, names: Sequence[str]) -> FeaturesDict:
        """A schema of only these features, so that others are not decoded."""
        wanted = tuple(dict.fromkeys(names))
        if wanted not in self._some:
            self._some[wanted] = FeaturesDict({name: self._features[name] for name in wanted})
        return self._some[wanted]


def labels_of(features: FeaturesDict) -> dict[str, Any]:
    """``num_classes`` and ``labels_to_names`` of the only ClassLabel; empty if there is none or more than one."""
    labels = [feature for feature in features.values() if isinstance(feature, ClassLabel)]
    if len(labels) != 1 or not labels[0].num_classes:
        return {}
    names = labels[0].names or map(str, range(labels[0].num_classes))
    return {"num_classes": labels[0].num_classes, "labels_to_names": dict(enumerate(names))}
