"""A dataset as TF-Slim defines it: files, their reader, the decoder of a record, and descriptions of the items."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Self

from registry.errors import AbsentFeatureWarning, VerificationError, WrongTypeError
from registry.model.numbers import whole_number
from registry.reading import SplitSource
from registry.slim.data_decoder import DataDecoder
from registry.slim.decoding_ahead import decode_record
from registry.slim.parallel_reader import parallel_read
from registry.slim.versions import FeaturesDecoder, files_of, labels_of, open_slice

_SHOWN: Final = 20


class Dataset:
    """Data sources with all that is needed to read items of them. Nothing is opened, and ``num_samples`` is believed.

        dataset = slim.Dataset("mnist-train-*", slim.TFRecordReader, decoder, 60000, {"image": "28 by 28, grey"})
        provider = slim.DatasetDataProvider(dataset, shuffle=False)
        image, label = provider.get(["image", "label"])

    Attributes:
        data_sources: a path, URL or pattern, or a list of them: see ``get_data_files``.
        reader: what reads a file: called with its path, it gives (key, record) pairs; None is ``TFRecordReader``.
        decoder: what decodes a record.
        num_samples: how many records there are.
        items_to_descriptions: what each item is, in words; None where nobody says.
        extras: what else was given, e.g. ``num_classes``: each is an attribute as well.

    Raises:
        UsageError: ``num_samples`` is invalid.
        WrongTypeError: no decoder, or a reader that cannot be called, or is TensorFlow's.
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
                f"reader={reader!r:.100} is not called with a path to give records",
                hint="slim.TFRecordReader and slim.TextLineReader take the place of TensorFlow's readers.",
            )
        if num_samples is not None:
            num_samples = whole_number(num_samples, "num_samples", least=0, hint="Give 0 or more, or None.")
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
        """The records of a split expression of a published version.

            dataset = slim.Dataset.from_version(catalog.dataset("digits"), "train[:80%]")

        Args:
            dataset_version: what ``catalog.dataset``, ``registry.builder`` or a pin gives.
            split: an expression, or a ReadInstruction. None is the slice of a pin, which has no other.
            decoder: None is one whose items are the version's features, decoded as they were declared.
            items_to_descriptions: None describes each feature, and nothing where another decoder makes other items.
            extras: attributes of the dataset. ``num_classes`` and ``labels_to_names`` are set where the version has one
                ClassLabel among its features.

        Raises:
            SplitSyntaxError, SplitNotFoundError, SliceError: as ``Dataset.resolve``.
            WrongTypeError: ``dataset_version`` is of another type.
            UsageError: no split is given, or another than the pin's.
        """
        found = open_slice(dataset_version, split)
        features = found.readable.features
        if decoder is None:
            decoder = FeaturesDecoder(features)
            if items_to_descriptions is None:
                items_to_descriptions = {name: repr(feature) for name, feature in features.items()}
        extras = {**labels_of(features), **extras}
        return cls(files_of(found), None, decoder, found.plan.num_examples, items_to_descriptions, **extras)

    def validate(self, *, deep: bool = False, reader_kwargs: Mapping[str, Any] | None = None) -> int:
        """Hold the dataset against its files: every record is read, counted, and checked by its checksum.

        Where every record is decoded, an ``AbsentFeatureWarning`` names the features that none of them has: maybe they
        are called otherwise, and nothing but defaults is read.

        Args:
            deep: whether every record is decoded; only the first is if not.
            reader_kwargs: what the reader is given beside a path.

        Returns:
            The number of records.

        Raises:
            VerificationError: there are not ``num_samples``, or the descriptions are of other items; all of it is said.
            CorruptRecordError, CorruptExampleError, StorageError: a file cannot be read, or a record not be decoded.
        """
        items = self.decoder.list_items()
        described = items if self.items_to_descriptions is None else list(self.items_to_descriptions)
        problems = [f"item {item!r} has no description" for item in items if item not in described]
        problems += [f"{name!r} is described, and no item" for name in described if name not in items]
        found = 0
        stored: set[str] = set()
        with parallel_read(
            self.data_sources, self.reader, num_epochs=1, num_readers=1, reader_kwargs=reader_kwargs, shuffle=False
        ) as records:
            for some in iter(records.read_records, []):  # until OutOfRangeError, which is a StopIteration
                for record in some if deep else some[: not found]:
                    decode_record(self.decoder, record, items)
                    stored.update(self.decoder.stored_keys(record[0]))
                found += len(some)
        if self.num_samples is not None and found != self.num_samples:
            problems.append(f"it says {self.num_samples} samples, and its files hold {found}")
        if problems:
            raise VerificationError(
                f"the dataset is not what it says: {'; '.join(problems)}",
                hint="Correct num_samples and items_to_descriptions, or the data sources.",
                details={"problems": problems, "num_records": found, "num_samples": self.num_samples},
            )
        absent = [key for key in self.decoder.declared_keys() if key not in stored]
        if deep and found and absent:
            warnings.warn(
                f"none of {found} records has the feature {', '.join(absent)}; they have "
                f"{', '.join(sorted(stored)[:_SHOWN]) or 'none'}",
                AbsentFeatureWarning,
                stacklevel=2,
            )
        return found

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this dataset has no {name!r}; what else it was given are {sorted(self.__dict__)}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a dataset does not change: {name!r} is given when it is made")

    def __reduce__(self) -> tuple[Any, ...]:
        """What is pickled and copied: what it was made of, as the extras are a view that cannot be."""
        given = (self.data_sources, self.reader, self.decoder, self.num_samples, self.items_to_descriptions)
        return partial(type(self), **self.extras), given

    def __repr__(self) -> str:
        return f"<Dataset: {self.num_samples} samples of {', '.join(self.decoder.list_items())}>"


def _check_decoder(decoder: Any) -> None:
    if isinstance(decoder, DataDecoder):
        return
    is_class = isinstance(decoder, type) and issubclass(decoder, DataDecoder)
    raise WrongTypeError(
        f"decoder={decoder!r:.100} is no DataDecoder" + (", but the class of one" if is_class else ""),
        hint="Make a decoder of it: TFExampleDecoder(keys_to_features, items_to_handlers)."
        if is_class
        else "Give a TFExampleDecoder, or a subclass of slim.DataDecoder with decode and list_items.",
    )
