"""A dataset as TF-Slim defines it: files, their reader, the decoder of a record, and descriptions of the items.

``DatasetDataProvider`` reads it. ``Dataset.from_version`` creates one from a published version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np

from registry.errors import AbsentFeatureWarning, ValuesOutsideWarning, VerificationError, WrongTypeError, warn
from registry.features import ClassLabel, Outside, merge_outside
from registry.model import whole_number
from registry.reading import SplitSource
from registry.slim.data_decoder import DataDecoder, as_block
from registry.slim.decoding_ahead import decode_record
from registry.slim.parallel_reader import parallel_read
from registry.slim.versions import FeaturesDecoder, files_of, labels_of, open_slice

_SHOWN: Final = 20
_LABEL: Final = "label"


class Dataset:
    """Data sources together with the reader and decoder of their records. Follows ``tf_slim.data.dataset.Dataset``.

    Creating it opens no file and does not check ``num_samples``; ``validate`` does.

        dataset = slim.Dataset("mnist-train-*", slim.TFRecordReader, decoder, 60000, {"image": "28 by 28, grey"})
        provider = slim.DatasetDataProvider(dataset, shuffle=False)
        image, label = provider.get(["image", "label"])

    Attributes:
        data_sources: a path, URL, pattern (``mnist-train-*``) or sharded name (``path@128``), or a list of them.
        reader: a callable that gets the path of a file and returns (key, record) pairs; None is ``TFRecordReader``.
        decoder: a DataDecoder, which decodes a record to items.
        num_samples: number of records; None if it is unknown.
        items_to_descriptions: a description of each item, or None.
        extras: all further keyword arguments, e.g. ``num_classes``. Each is also an attribute of the dataset.

    Raises:
        UsageError: ``num_samples`` is negative.
        WrongTypeError: ``decoder`` is not a DataDecoder, ``num_samples`` is not a whole number, or ``reader`` cannot be
            called or is a TensorFlow class.
    """

    data_sources: Any
    reader: Callable[..., Any] | None
    decoder: DataDecoder
    num_samples: int | None
    items_to_descriptions: Mapping[str, str] | None
    extras: Mapping[str, Any]

    def __init__(
        self,
        data_sources: Any,
        reader: Callable[..., Any] | None,
        decoder: DataDecoder,
        num_samples: int | None,
        items_to_descriptions: Mapping[str, str] | None,
        **extras: Any,
    ) -> None:
        _check_decoder(decoder)
        of_tensorflow = str(getattr(reader, "__module__", "")).split(".")[0] in ("tensorflow", "tf_slim")
        if reader is not None and (of_tensorflow or not callable(reader)):
            raise WrongTypeError(
                f"reader={reader!r:.100} cannot be called with a path to return records",
                hint="Use slim.TFRecordReader or slim.TextLineReader instead of TensorFlow's readers.",
            )
        if num_samples is not None:
            num_samples = whole_number(num_samples, "num_samples", least=0, hint="Pass 0 or more, or None.")
        given = {
            "data_sources": data_sources,
            "reader": reader,
            "decoder": decoder,
            "num_samples": num_samples,
            "items_to_descriptions": items_to_descriptions,
            "extras": MappingProxyType(extras),
        }
        self.__dict__.update({**extras, **given})

    @classmethod
    def from_version(
        cls,
        dataset_version: SplitSource,
        split: Any = None,
        *,
        decoder: DataDecoder | None = None,
        items_to_descriptions: Mapping[str, str] | None = None,
        **extras: Any,
    ) -> Self:
        """The records of a slice of a published version.

            dataset = slim.Dataset.from_version(catalog.dataset("digits"), "train[:80%]")

        Args:
            dataset_version: a dataset from ``catalog.dataset(...)`` or ``registry.builder(...)``, or a pin.
            split: a split expression or a ReadInstruction. For a pin, None means its slice, the only one it has.
            decoder: a decoder of the records; None decodes the features of the version as items.
            items_to_descriptions: a description of each item; None describes the features, or nothing if ``decoder`` is
                given.
            extras: further attributes of the dataset. ``num_classes`` and ``labels_to_names`` are set if the version
                has exactly one ClassLabel.

        Raises:
            SplitSyntaxError: the split expression is malformed.
            SplitNotFoundError: the version has no split of that name.
            SliceError: a slice is out of range or reversed.
            WrongTypeError: ``dataset_version`` has another type.
            UsageError: no split is given, or the pin has another slice.
        """
        part = open_slice(dataset_version, split)
        features = part.readable.features
        if decoder is None:
            decoder = FeaturesDecoder(features)
            if items_to_descriptions is None:
                items_to_descriptions = {name: repr(feature) for name, feature in features.items()}
        extras = {**labels_of(features), **extras}
        return cls(files_of(part), None, decoder, part.plan.num_examples, items_to_descriptions, **extras)

    def validate(self, *, deep: bool = False, reader_kwargs: Mapping[str, Any] | None = None) -> int:
        """Check the dataset against its files: read and count every record, and check its checksum.

        With ``deep``, an ``AbsentFeatureWarning`` names declared features that no record has. Their names may be
        misspelled, so that only default values would be read. A ``ValuesOutsideWarning`` names features with values
        that they do not allow, such as a number that belongs to no class, with the number of records and the first of
        them. With a custom decoder, the item ``label`` is compared with ``num_classes``.

        Args:
            deep: decode every record instead of only the first.
            reader_kwargs: further keyword arguments for the reader.

        Returns:
            The number of records.

        Raises:
            VerificationError: the number of records is not ``num_samples``, or the descriptions do not match the items;
                the message lists every problem.
            CorruptRecordError: a file is damaged.
            CorruptExampleError: a record cannot be decoded.
            StorageError: a file cannot be read.
        """
        items = self.decoder.list_items()
        described = items if self.items_to_descriptions is None else list(self.items_to_descriptions)
        problems = [f"item {item!r} has no description" for item in items if item not in described]
        problems += [f"the description {name!r} belongs to no item" for name in described if name not in items]
        result = 0
        stored: set[str] = set()
        limits = self.decoder.limits() if deep else None
        label = self._label() if deep and limits is None else None
        outside: list[Outside] = []
        with parallel_read(
            self.data_sources, self.reader, num_epochs=1, num_readers=1, reader_kwargs=reader_kwargs, shuffle=False
        ) as records:
            for some in iter(records.read_records, []):  # until OutOfRangeError, which is a StopIteration
                for place, record in enumerate(some if deep else some[: not result], start=result):
                    row = decode_record(self.decoder, record, items)
                    stored.update(self.decoder.stored_keys(record[0]))
                    if label is not None:
                        outside += _check_label(label, row[items.index(_LABEL)], place)
                if limits is not None and limits.is_needed:
                    outside += limits.in_records(*as_block([record[0] for record in some]), start=result)
                result += len(some)
        if self.num_samples is not None and result != self.num_samples:
            problems.append(f"expected {self.num_samples} samples, found {result} in its files")
        if problems:
            raise VerificationError(
                f"the dataset does not match its files: {'; '.join(problems)}",
                hint="Correct num_samples and items_to_descriptions, or the data sources.",
                details={"problems": problems, "num_records": result, "num_samples": self.num_samples},
            )
        absent = [key for key in self.decoder.declared_keys() if key not in stored]
        if deep and result and absent:
            warn(
                f"none of {result} records has the feature {', '.join(absent)}; they have "
                f"{', '.join(sorted(stored)[:_SHOWN]) or 'none'}",
                AbsentFeatureWarning,
            )
        for fault in merge_outside(outside):
            warn(
                f"{fault.feature!r} must be {fault.limits}: {fault.num_records:,} of {result:,} records have other "
                f"values; the first, record {fault.first_record}, has {fault.value}",
                ValuesOutsideWarning,
            )
        return result

    def _label(self) -> ClassLabel | None:
        """The classes of the item ``label``, from ``num_classes``; None if either is missing."""
        number = self.extras.get("num_classes")
        if not isinstance(number, int | np.integer) or number < 1 or _LABEL not in self.decoder.list_items():
            return None
        return ClassLabel(num_classes=int(number))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this dataset has no attribute {name!r}; it has {sorted(self.__dict__)}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a dataset is immutable: pass {name!r} when you create it")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the arguments, because the read-only view of the extras cannot be pickled."""
        given = (self.data_sources, self.reader, self.decoder, self.num_samples, self.items_to_descriptions)
        return partial(type(self), **self.extras), given

    def __repr__(self) -> str:
        return f"<Dataset: {self.num_samples} samples of {', '.join(self.decoder.list_items())}>"


def _check_label(label: ClassLabel, value: Any, place: int) -> list[Outside]:
    """Find values outside the classes in the item ``label`` of a record. Finds nothing if they are not integers."""
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "iu":
        return []
    numbers = np.asarray(value).reshape(-1)
    result = numbers[label.outside(numbers)]
    if not result.size:
        return []
    return [Outside(feature=_LABEL, limits=label.limits, num_records=1, first_record=place, value=str(result[0]))]


def _check_decoder(decoder: Any) -> None:
    if isinstance(decoder, DataDecoder):
        return
    is_class = isinstance(decoder, type) and issubclass(decoder, DataDecoder)
    raise WrongTypeError(
        f"decoder={decoder!r:.100} is not a DataDecoder" + (" but a class" if is_class else ""),
        hint="Create a decoder: TFExampleDecoder(keys_to_features, items_to_handlers)."
        if is_class
        else "Pass a TFExampleDecoder, or a subclass of slim.DataDecoder with decode and list_items.",
    )
