"""Runs author code: its features, splits and examples, checked at the border, each example with its place in the split.

Whatever goes wrong in author code becomes a BuildError that names the split and the last key, with the author's own
exception as its cause.

Keys become hashes, and the hashes decide the order, as in TFDS 4.9: the hash is ``md5(salt || key)``, the salt is the
split's name, and records lie on disk in the order of their hashes, whatever the order of generation, the machine and
the number of processes. Hashes are 16 bytes, big-endian, so comparing the bytes compares the 128-bit numbers.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Generator, Iterator, Mapping
from types import GeneratorType
from typing import Any, Final, TypeAlias

import numpy as np

from registry.building.builder import DatasetBuilder, Examples
from registry.building.encoding import KeyedExample
from registry.building.sorter import Entry, ExternalSorter
from registry.errors import BuildError, RegistryError, UsageError
from registry.features import FeaturesDict
from registry.model import check_split_name

Key: TypeAlias = "str | int | bytes | np.integer[Any] | np.ndarray[Any, Any]"
"""What an author may use as a key: text, a whole number, bytes, or an array of one of these with one element."""

SORT_KEY_BYTES: Final = 16
"""Length of every sort key: of an md5 digest, and of a number biased to be positive."""

_BIAS: Final = 1 << (8 * SORT_KEY_BYTES - 1)
_LABEL_WIDTH: Final = 120


def call_features(builder: DatasetBuilder) -> FeaturesDict:
    """The features of ``builder``, which hold its supervised keys.

    Raises:
        BuildError: the method fails, or gives something else.
    """
    owner = type(builder).__name__
    try:
        features: Any = builder.features()
    except Exception as error:
        raise _author_error(f"{owner}.features()", error) from error
    if not isinstance(features, FeaturesDict):
        raise BuildError(
            f"{owner}.features() gives {_kind(features)}",
            hint='Return FeaturesDict({"name": feature, ...}) from registry.features.',
        )
    for key in builder.metadata.supervised_keys or ():
        if key not in features:
            raise BuildError(
                f"{owner}.SUPERVISED_KEYS names {key!r}, which is no feature",
                hint=f"The features are: {', '.join(features)}.",
                details={"feature": key},
            )
    return features


def call_splits(builder: DatasetBuilder) -> dict[str, Examples]:
    """What ``builder`` yields for each split, in its order; nothing is generated yet.

    Raises:
        BuildError: the method fails, gives something else, or a split has a name that cannot be one.
    """
    owner = type(builder).__name__
    try:
        splits: Any = builder.splits()
    except Exception as error:
        raise _author_error(f"{owner}.splits()", error) from error
    if not isinstance(splits, Mapping) or not splits:
        raise BuildError(
            f"{owner}.splits() gives {'no split' if isinstance(splits, Mapping) else _kind(splits)}",
            hint='Return a dict of split name -> (key, example) pairs, e.g. {"train": self._examples("train")}.',
        )
    for name in splits:
        try:
            check_split_name(name if isinstance(name, str) else "")
        except UsageError as error:
            raise BuildError(f"{owner}.splits(): invalid split name {name!r:.80}", hint=error.hint) from error
    return dict(splits)


def key_examples(
    split: str, examples: Examples, *, shuffled: bool, unsorted_keys: ExternalSorter
) -> Generator[KeyedExample, None, None]:
    """The examples of a split as the author yields them, each with the sort key that its key gives it.

    Shuffled: the hash of the key. Not shuffled: the key itself where keys are numbers, else the position; then keys
    order nothing, and go to ``unsorted_keys``, whose ``sorted_entries`` finds one that is used twice.

    Raises:
        BuildError: author code failed, or yielded something other than a pair, an invalid key, or one that does not
            go with the others.
    """
    numbered: bool | None = None
    for position, item in enumerate(_run(split, examples)):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise BuildError(
                f"split {split!r}, example {position}: expected a pair (key, example), got {_kind(item)}",
                hint="Yield key, example: the key is unique in its split, e.g. a file name or a row number.",
                details={"split": split, "position": position},
            )
        try:
            key = plain_key(item[0])
            label = label_of(key)
            if shuffled:
                sort_key = hash_key(split, key)
            else:
                is_number = isinstance(key, int)
                numbered = is_number if numbered is None else numbered
                if is_number is not numbered:
                    raise BuildError(
                        f"invalid key {label}: some keys are numbers and some are not, so they give no order",
                        hint="Without shuffling, yield numbers for all examples, or for none.",
                    )
                sort_key = number_key(key if isinstance(key, int) else position)
                if not is_number:
                    unsorted_keys.add(Entry(hash_key(split, key), label, b""))
        except BuildError as error:
            raise BuildError(
                f"split {split!r}, example {position}: {error.message}",
                hint=error.hint,
                details={**error.details, "split": split, "position": position},
            ) from error
        yield KeyedExample(sort_key, label, item[1])


def _run(split: str, examples: Examples) -> Iterator[Any]:
    """Run author code. What is raised where the items are used does not come by here: only what that code raises."""
    position, last = 0, None
    iterator: Iterator[Any] | None = None
    try:
        iterator = iter(examples() if callable(examples) else examples)
        for item in iterator:
            last = item
            yield item
            position += 1
    except Exception as error:
        after = f" after {position} example{'' if position == 1 else 's'}" if position else ""
        if position and isinstance(last, tuple) and last:
            after += f", the last with key {label_of(last[0])}"
        raise _author_error(
            f"split {split!r}: the generator", error, after=after, details={"split": split, "position": position}
        ) from error
    finally:
        if isinstance(iterator, GeneratorType):  # at an error elsewhere: an author's open files close now
            iterator.close()


def _author_error(
    what: str, error: Exception, *, after: str = "", details: Mapping[str, Any] | None = None
) -> BuildError:
    """The error with file and line of the author's code: of the first frame that is not of this file."""
    frames = traceback.extract_tb(error.__traceback__)
    place = next((frame for frame in frames if frame.filename != __file__), None)
    where = "" if place is None else f"{place.filename}, line {place.lineno}"
    hint = error.hint if isinstance(error, RegistryError) else None
    return BuildError(
        f"{what} failed{after}: {type(error).__name__}: {error}" + (f" ({where})" if where else ""),
        hint=hint or "Set REGISTRY_DEBUG=1 to see the whole traceback.",
        details={**(details or {}), "where": where},
    )


def _kind(value: object) -> str:
    return "None" if value is None else f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"


def plain_key(key: object) -> str | int | bytes:
    """``key`` as plain text, number or bytes: numpy's scalars and arrays of one element stand for their value.

    >>> plain_key(np.int64(3)), plain_key(np.array(["a"])), plain_key(b"raw")
    (3, 'a', b'raw')

    Raises:
        BuildError: anything else. TFDS hashes True as the text "True", where everything else in Python takes it for 1,
            and refuses numpy's integers; here a bool is refused as ambiguous and numpy's integers count as numbers.
    """
    if type(key) in (str, int, bytes):
        return key  # type: ignore[return-value]  # mypy does not narrow by `type(x) in`, which is the fast path here
    if isinstance(key, np.ndarray) and key.size == 1:
        key = key.item()
    problem = f"a key is text, a whole number or bytes, not {type(key).__name__}"
    if isinstance(key, bool | np.bool_):
        problem = "a bool may mean 1 or 'True'"
    elif isinstance(key, int | np.integer):
        return int(key)
    elif isinstance(key, bytes):
        return bytes(key)
    elif isinstance(key, str):
        return str(key)
    raise BuildError(
        f"invalid key {label_of(key)}: {problem}",
        hint="Yield (key, example) with a key that is unique in its split, e.g. a file name or a row number.",
        details={"key": label_of(key)},
    )


def hash_key(salt: str | bytes, key: Key) -> bytes:
    r"""16 bytes: the md5 of ``salt`` followed by ``key``.

    Text is UTF-8 with ``\`` read as ``/``, so that a path gives one hash on every system; numbers are their decimal
    digits, so 1 and "1" are the same key.

    >>> hash_key("train", 0).hex()
    '9318f9213195ac5c50b1ddb3c7d5aacd'

    Raises:
        BuildError: no key (see ``plain_key``), or text that UTF-8 cannot hold.
    """
    salt_bytes = salt.encode() if isinstance(salt, str) else salt
    plain = plain_key(key)
    try:
        text = plain.replace("\\", "/") if isinstance(plain, str) else plain
        key_bytes = text if isinstance(text, bytes) else str(text).encode()
    except ValueError as error:  # a lone surrogate, or more digits than Python prints
        raise BuildError(
            f"invalid key {label_of(plain)}: it cannot be written as UTF-8 text",
            hint="Yield the raw name as bytes, e.g. os.fsencode(name).",
            details={"key": label_of(plain)},
        ) from error
    return hashlib.md5(salt_bytes + key_bytes, usedforsecurity=False).digest()


def number_key(number: int) -> bytes:
    """16 bytes that sort as ``number`` does, from -2**127 to 2**127 - 1: for datasets that are not shuffled.

    >>> number_key(-5) < number_key(0) < number_key(300)
    True

    Raises:
        BuildError: the number lies outside.
    """
    try:
        return (number + _BIAS).to_bytes(SORT_KEY_BYTES, "big")
    except OverflowError as error:
        raise BuildError(
            f"invalid key {label_of(number)}: without shuffling a number lies in -2**127..2**127-1",
            details={"key": label_of(number)},
        ) from error


def label_of(key: object) -> str:
    """``key`` as an error shows it: its ``repr``, with the middle of a long one left out.

    >>> label_of("a.png"), len(label_of("x" * 500))
    ("'a.png'", 120)
    """
    if isinstance(key, int) and abs(key).bit_length() > 4 * _LABEL_WIDTH:  # Python refuses to print very long numbers
        return f"<a number of {key.bit_length()} bits>"
    text = repr(key)
    if len(text) <= _LABEL_WIDTH:
        return text
    half = (_LABEL_WIDTH - 1) // 2
    return f"{text[: _LABEL_WIDTH - 1 - half]}…{text[-half:]}"
