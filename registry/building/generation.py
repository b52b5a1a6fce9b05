"""Runs author code (features, splits, generators), checks what it returns, and turns each key into a sort key.

``build`` calls it; the keyed examples go to ``encoding``. Every fault of author code becomes a BuildError that names
the split, the last key and the author's file and line, with the author's own exception as its cause.

Records are sorted by the hash of their key, as in TFDS 4.9: the hash is ``md5(salt || key)``, and the salt is the name
of the split. The order is therefore the same for every order of generation, machine and number of processes. Hashes are
16 bytes, big-endian, so that comparing the bytes compares the 128-bit numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from types import GeneratorType
from typing import Any, Final, TypeAlias

import numpy as np

from registry.building.author_code import Place, add_place, author_error, function_place
from registry.building.builder import DatasetBuilder, Examples
from registry.building.encoding import KeyedExample
from registry.building.sorter import Entry, ExternalSorter
from registry.errors import BuildError, DuplicateKeyError, UsageError
from registry.features import FeaturesDict
from registry.model import check_split_name

Key: TypeAlias = "str | int | bytes | np.integer[Any] | np.ndarray[Any, Any]"
"""A key that an author may use: text, a whole number, bytes, or an array with one such element."""

SORT_KEY_BYTES: Final = 16
"""Length of a sort key: an md5 digest, or a number with ``_BIAS`` added, which makes it positive."""

_BIAS: Final = 1 << (8 * SORT_KEY_BYTES - 1)
_LABEL_WIDTH: Final = 120


def call_features(builder: DatasetBuilder) -> FeaturesDict:
    """Return the features of ``builder``, which contain its supervised keys.

    Raises:
        BuildError: ``features()`` failed or returned something else; names the author's file and line.
    """
    owner, place = type(builder).__name__, function_place(type(builder).features)
    try:
        features: Any = builder.features()
    except (Exception, SystemExit) as error:
        raise author_error(f"{owner}.features() failed", error) from error
    if not isinstance(features, FeaturesDict):
        hint = 'Return FeaturesDict({"name": feature, ...}) from registry.features.'
        if isinstance(features, Mapping):
            hint = "Write return FeaturesDict({...}) with this dict: from registry.features import FeaturesDict"
        elif features is None:
            hint = 'Does it end without return? Write return FeaturesDict({"name": feature, ...}).'
        raise _located(f"{owner}.features() must return a FeaturesDict, found {_kind(features)}", place, hint)
    for key in builder.metadata.supervised_keys or ():
        if key not in features:
            raise _located(
                f"{owner}.SUPERVISED_KEYS contains {key!r}, which is not a feature",
                place,
                f"The features are: {', '.join(features)}.",
                feature=key,
            )
    return features


def call_splits(builder: DatasetBuilder) -> dict[str, Examples]:
    """Return what ``builder.splits()`` returns, checked. Nothing is generated yet.

    Raises:
        BuildError: ``splits()`` failed or returned something else, or a split has an invalid name; names the author's
            file and line.
    """
    owner, place = type(builder).__name__, function_place(type(builder).splits)
    try:
        splits: Any = builder.splits()
    except (Exception, SystemExit) as error:
        raise author_error(f"{owner}.splits() failed", error) from error
    if not isinstance(splits, Mapping) or not splits:
        found = "an empty dict" if isinstance(splits, Mapping) else _kind(splits)
        hint = 'Return a dict of split name -> (key, example) pairs, e.g. {"train": self._examples("train")}.'
        raise _located(f"{owner}.splits() must return a dict with one split or more, found {found}", place, hint)
    generators: dict[int, str] = {}
    for name, examples in splits.items():
        try:
            check_split_name(name if isinstance(name, str) else "")
        except UsageError as error:
            raise _located(f"{owner}.splits(): invalid split name {name!r:.80}", place, error.hint) from error
        if isinstance(examples, Mapping):
            problem, hint = "found a dict", "Pass its items: they are pairs (key, example). Write examples.items()."
        elif isinstance(examples, str | bytes) or not (callable(examples) or _is_iterable(examples)):
            problem = f"found {_kind(examples)}"
            hint = (
                "Does the method yield? Write yield key, example."
                if examples is None
                else "Pass a generator or a list."
            )
        elif isinstance(examples, GeneratorType) and id(examples) in generators:
            problem = f"found the generator of split {generators[id(examples)]!r}, which can only be run once"
            hint = "Call the generator function once for each split."
        else:
            generators[id(examples)] = name
            continue
        raise _located(f"{owner}.splits()[{name!r}]: expected pairs (key, example), {problem}", place, hint, split=name)
    return dict(splits)


def examples_place(builder: DatasetBuilder, examples: Examples) -> Place | None:
    """Where the examples of a split are made: the generator or function, else the method ``splits``."""
    return function_place(examples) or function_place(type(builder).splits)


def key_examples(
    split: str, examples: Examples, *, shuffled: bool, unsorted_keys: ExternalSorter
) -> Generator[KeyedExample, None, None]:
    """Yield the examples of a split in the author's order, each with its sort key.

    With shuffling, the sort key is the hash of the key. Without, it is the key if keys are numbers, and otherwise the
    position. In that case the sort key does not reveal a key that is used twice, so keys are also added to
    ``unsorted_keys``, whose ``sorted_entries`` finds it.

    Raises:
        BuildError: author code failed, or yielded something other than a pair, an invalid key, or keys of which some
            are numbers and some are not although the dataset is not shuffled.
        DuplicateKeyError: two consecutive examples have the same key. A generator that never changes its key would
            otherwise run until the disk is full.
    """
    numbered: bool | None = None
    previous: Key | None = None
    for position, item in enumerate(_run(split, examples)):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise BuildError(
                f"split {split!r}, example {position}: expected a pair (key, example), found {_kind(item)}",
                hint="Write yield key, example. The key is unique in its split, e.g. a file name or a row number.",
                details={"split": split, "position": position},
            )
        try:
            key = plain_key(item[0])
            label = label_of(key)
            if position and type(key) is type(previous) and key == previous:
                raise DuplicateKeyError(
                    f"split {split!r}: the key {label} is used twice, by examples {position - 1} and {position}",
                    hint="Yield a key that is unique in the split, e.g. a file name or a row number.",
                    details={"split": split, "keys": [label, label]},
                )
            previous = key
            if shuffled:
                sort_key = hash_key(split, key)
            else:
                is_number = isinstance(key, int)
                numbered = is_number if numbered is None else numbered
                if is_number is not numbered:
                    raise BuildError(
                        f"invalid key {label}: some keys are numbers and some are not, so they cannot be ordered",
                        hint="With DISABLE_SHUFFLING, either all keys are numbers or none is.",
                    )
                sort_key = number_key(key if isinstance(key, int) else position)
                if not is_number:
                    unsorted_keys.add(Entry(hash_key(split, key), label, b""))
        except DuplicateKeyError:
            raise
        except BuildError as error:
            raise BuildError(
                f"split {split!r}, example {position}: {error.message}",
                hint=error.hint,
                details={**error.details, "split": split, "position": position},
            ) from error
        yield KeyedExample(sort_key, label, item[1])


def _run(split: str, examples: Examples) -> Iterator[Any]:
    """Run the author's generator. Only its own exceptions are caught here, not those of the caller."""
    position, last = 0, None
    iterator: Iterator[Any] | None = None
    try:
        iterator = iter(examples() if callable(examples) else examples)
        for item in iterator:
            last = item
            yield item
            position += 1
    except (Exception, SystemExit) as error:
        after = f" after {position} example{'' if position == 1 else 's'}" if position else ""
        if position and isinstance(last, tuple) and last:
            after += f", the last with key {label_of(last[0])}"
        raised = author_error(
            f"split {split!r}: the generator failed", error, after=after, details={"split": split, "position": position}
        )
        add_place(raised, function_place(examples))
        raise raised from error
    finally:
        if isinstance(iterator, GeneratorType):  # if the build fails elsewhere, the author's open files are closed now
            iterator.close()


def _located(problem: str, place: Place | None, hint: str | None, **details: object) -> BuildError:
    error = BuildError(problem, hint=hint, details=details)
    add_place(error, place)
    return error


def _is_iterable(value: object) -> bool:
    return isinstance(value, Iterable) or hasattr(value, "__getitem__")


def _kind(value: object) -> str:
    return "None" if value is None else f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"


def plain_key(key: object) -> str | int | bytes:
    """Return ``key`` as plain text, number or bytes. NumPy scalars and arrays of one element become their value.

    >>> plain_key(np.int64(3)), plain_key(np.array(["a"])), plain_key(b"raw")
    (3, 'a', b'raw')

    Raises:
        BuildError: the key is something else. Booleans are refused as ambiguous: TFDS hashes True as the text "True",
            while True equals 1 in Python. NumPy's integers are accepted, which TFDS refuses.
    """
    if type(key) in (str, int, bytes):
        return key  # type: ignore[return-value]  # mypy does not narrow by `type(x) in`, which is the fast path here
    if isinstance(key, np.ndarray) and key.size == 1:
        key = key.item()
    problem = f"expected text, a whole number or bytes, found {type(key).__name__}"
    if isinstance(key, bool | np.bool_):
        problem = "a bool is ambiguous: it could mean 1 or 'True'"
    elif isinstance(key, int | np.integer):
        return int(key)
    elif isinstance(key, bytes):
        return bytes(key)
    elif isinstance(key, str):
        return str(key)
    raise BuildError(
        f"invalid key {label_of(key)}: {problem}",
        hint="Write yield key, example. The key is unique in its split, e.g. a file name or a row number.",
        details={"key": label_of(key)},
    )


def hash_key(salt: str | bytes, key: Key) -> bytes:
    r"""Return 16 bytes: the md5 of ``salt`` followed by ``key``.

    Text is encoded as UTF-8 with ``\`` replaced by ``/``, so that a path has the same hash on every system. Numbers are
    hashed as their decimal digits, so 1 and "1" are the same key.

    >>> hash_key("train", 0).hex()
    '9318f9213195ac5c50b1ddb3c7d5aacd'

    Raises:
        BuildError: the key is invalid (see ``plain_key``), or text that cannot be encoded as UTF-8.
    """
    salt_bytes = salt.encode() if isinstance(salt, str) else salt
    plain = plain_key(key)
    try:
        text = plain.replace("\\", "/") if isinstance(plain, str) else plain
        key_bytes = text if isinstance(text, bytes) else str(text).encode()
    except ValueError as error:  # a lone surrogate, or more digits than Python prints
        raise BuildError(
            f"invalid key {label_of(plain)}: it cannot be encoded as UTF-8",
            hint="Use the name as bytes: os.fsencode(name)",
            details={"key": label_of(plain)},
        ) from error
    return hashlib.md5(salt_bytes + key_bytes, usedforsecurity=False).digest()


def number_key(number: int) -> bytes:
    """Return 16 bytes that sort like ``number``, for datasets that are not shuffled.

    >>> number_key(-5) < number_key(0) < number_key(300)
    True

    Raises:
        BuildError: the number is outside -2**127..2**127-1.
    """
    try:
        return (number + _BIAS).to_bytes(SORT_KEY_BYTES, "big")
    except OverflowError as error:
        raise BuildError(
            f"invalid key {label_of(number)}: without shuffling, a number must be in -2**127..2**127-1",
            details={"key": label_of(number)},
        ) from error


def label_of(key: object) -> str:
    """Return ``key`` as errors show it: its ``repr``, shortened in the middle if it is long.

    >>> label_of("a.png"), len(label_of("x" * 500))
    ("'a.png'", 120)
    """
    if isinstance(key, int) and abs(key).bit_length() > 4 * _LABEL_WIDTH:  # Python refuses to print very long numbers
        return f"<a number of {key.bit_length()} bits>"
    try:
        text = repr(key)
    except Exception:  # noqa: BLE001 - author code
        text = f"<{type(key).__name__}>"
    if len(text) <= _LABEL_WIDTH:
        return text
    half = (_LABEL_WIDTH - 1) // 2
    return f"{text[: _LABEL_WIDTH - 1 - half]}…{text[-half:]}"
