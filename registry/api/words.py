"""Which words of TFDS mean something here? Arguments of its functions, taken, or refused with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from registry.errors import UsageError

if TYPE_CHECKING:
    from registry.api.dataset import Dataset
    from registry.order import ReadConfig

_HARMLESS: Final = ("download", "try_gcs")
"""Whether to download: nothing is downloaded, and what is not in the catalog is an error with a hint."""

_INSTEAD: Final = {
    "decoders": "Examples are decoded as the features say. What is stored undecoded comes from reader.records().",
    "builder_kwargs": 'Name config and version in the reference, e.g. "mnist/plain:3.0.1", and the folder as data_dir.',
    "download_and_prepare_kwargs": "Prepare it before: registry build NAME, or registry import tfds DIR.",
    "as_dataset_kwargs": "Give split, read_config, shuffle_files and the others to this function itself.",
    "download_dir": "Builders bring their own data: registry build NAME.",
    "download_config": "Builders bring their own data: registry build NAME.",
    "deserialize_method": "What is stored undecoded comes from reader.records().",
}


_OWN: Final = ("with_info", "as_supervised", "shuffle_files", "batch_size", "read_config", "split", "data_dir")


def check_tfds_words(function: str, words: Mapping[str, Any]) -> str | None:
    """Hold the other arguments of a function of TFDS against what is done here; the file format that is asked for.

    Raises:
        UsageError: one asks for something that is not done, with what to do instead.
        TypeError: no function of TFDS has it.
    """
    for word, value in words.items():
        if word in _HARMLESS or word == "file_format":
            continue
        if word not in _INSTEAD:
            from difflib import get_close_matches

            nearest = get_close_matches(word, [*_HARMLESS, *_INSTEAD, *_OWN], n=1)
            meant = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise TypeError(f"registry.{function} has no argument {word!r}{meant}")
        if value:
            raise UsageError(
                f"{word} means nothing to registry.{function}: {value!r:.60}",
                hint=_INSTEAD[word],
                details={"argument": word},
            )
    file_format = words.get("file_format")
    return None if file_format is None else str(getattr(file_format, "value", file_format))


def read_read_config(dataset: Dataset, read_config: ReadConfig | None, *, shuffle_files: Any) -> ReadConfig | None:
    """The order that is asked for by a config and the argument ``shuffle_files``.

    Raises:
        UsageError: the config permutes all records, or the version's records have an order that is kept.
    """
    if not isinstance(shuffle_files, bool):
        raise UsageError(f"shuffle_files is True or False, not {shuffle_files!r:.60}")
    if not shuffle_files:
        return read_config
    if dataset.details.disable_shuffling:
        raise UsageError(
            f"{dataset.reference} keeps its records in their order, and shuffle_files=True asks for another one",
            hint="Leave shuffle_files out; or insist: read_config=registry.ReadConfig(shuffle_files=True).",
        )
    from registry.order.config import check_kind

    return replace(check_kind(read_config), shuffle_files=True)
