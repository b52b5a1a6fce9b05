"""Runs author code (features, splits, generators), checks what it returns, and turns each key into a sort key.

``build`` calls it; the pairs of key and example go to ``encoding``, which calls the ``Keyer`` for blocks of keys. Every
fault of author code becomes a BuildError that names the split, the last key and the author's file and line, with the
author's own exception as its cause.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import eq
from types import GeneratorType
from typing import Any, Final

import numpy as np

from registry.building.author_code import CodeLine, add_place, author_error, function_place
from registry.building.builder import DatasetBuilder, Examples, Generated
from registry.building.input_labels import numbered_label
from registry.building.keys import (
    LABEL_WIDTH,
    Key,
    SortKeys,
    hash_key,
    hash_texts,
    join_sort_keys,
    label_of,
    number_key,
    plain_key,
)
from registry.building.pieces import Pieces
from registry.building.run_format import KeyedFrames
from registry.building.sorter import ExternalSorter
from registry.errors import BuildError, DuplicateKeyError, UsageError
from registry.features import FeaturesDict
from registry.model import check_split_name
from registry.tfrecord import Frames

_EXAMPLES_BITS: Final = 64
"""The number of an input is shifted by these many bits to make room for the positions of its examples."""


def call_features(builder: DatasetBuilder) -> FeaturesDict:
    """Return the features of ``builder``, which contain its supervised keys.

    Raises:
        BuildError: ``features()`` failed or returned something else; names the author's file and line.
    """
    owner, method = type(builder).__name__, type(builder).features
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
        raise _located(f"{owner}.features() must return a FeaturesDict, found {_kind(features)}", method, hint)
    for key in builder.metadata.supervised_keys or ():
        if key not in features:
            raise _located(
                f"{owner}.SUPERVISED_KEYS contains {key!r}, which is not a feature",
                method,
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
    owner, method = type(builder).__name__, type(builder).splits
    try:
        splits: Any = builder.splits()
    except (Exception, SystemExit) as error:
        raise author_error(f"{owner}.splits() failed", error) from error
    if not isinstance(splits, Mapping) or not splits:
        found = "an empty dict" if isinstance(splits, Mapping) else _kind(splits)
        hint = 'Return a dict of split name -> (key, example) pairs, e.g. {"train": self._examples("train")}.'
        raise _located(f"{owner}.splits() must return a dict with one split or more, found {found}", method, hint)
    generators: dict[int, str] = {}
    for name, examples in splits.items():
        try:
            check_split_name(name if isinstance(name, str) else "")
        except UsageError as error:
            raise _located(f"{owner}.splits(): invalid split name {name!r:.80}", method, error.hint) from error
        if isinstance(examples, Mapping):
            problem, hint = "found a dict", "Pass its items: they are pairs (key, example). Write examples.items()."
        elif isinstance(examples, Pieces):
            inputs: Any = examples.inputs
            generate: Any = examples.generate
            if callable(generate) and _is_iterable(inputs) and not isinstance(inputs, str | bytes):
                continue
            problem, hint = "found Pieces without inputs or without a function", "Write Pieces([...], self._generate)."
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
        problem = f"{owner}.splits()[{name!r}]: expected pairs (key, example), {problem}"
        raise _located(problem, method, hint, split=name)
    return dict(splits)


def examples_place(builder: DatasetBuilder, examples: Examples) -> CodeLine | None:
    """Return the place at which the examples of a split are made: the generator or function, else ``splits``."""
    generate = examples.generate if isinstance(examples, Pieces) else examples
    return function_place(generate) or function_place(type(builder).splits)


def run_generator(split: str, examples: Generated, *, where: str = "") -> Generator[Any, None, None]:
    """Run the author's generator and yield what it yields. Only its own exceptions are caught, not the caller's.

    Args:
        split: the name of the split.
        examples: the generator, or a function that returns one.
        where: the subject of errors; by default, the split.

    Raises:
        BuildError: author code failed; names the last key, and the author's file and line.
    """
    position, last = 0, None
    is_suspended = False
    iterator: Iterator[Any] | None = None
    try:
        pairs = examples() if callable(examples) else examples
        if not _is_iterable(pairs):  # often a function that ends without yield
            raise TypeError(f"it must yield or return pairs (key, example), and returned {_kind(pairs)}")
        iterator = iter(pairs)
        for item in iterator:
            last = item
            is_suspended = True
            yield item
            is_suspended = False
            position += 1
    except (Exception, SystemExit, GeneratorExit) as error:
        if is_suspended and isinstance(error, GeneratorExit):  # the caller closes this generator
            raise
        after = f" after {position} example{'' if position == 1 else 's'}" if position else ""
        if position and isinstance(last, tuple) and last:
            after += f", the last with key {label_of(last[0])}"
        raised = author_error(
            f"{where or f'split {split!r}'}: the generator failed",
            error,
            after=after,
            details={"split": split, "position": position},
        )
        add_place(raised, function_place(examples))
        raise raised from error
    finally:
        if isinstance(iterator, GeneratorType):  # if the build fails elsewhere, this closes the author's open files
            iterator.close()


class Keyer:
    """Checks the keys of a split, in the author's order, and turns each into a sort key.

    With shuffling, the sort key is the hash of the key. Without, it is the key if keys are numbers, and otherwise the
    position. In that case the sort key does not reveal a key that is used twice, so keys are also added to
    ``unsorted_keys``, whose ``sorted_frames`` finds it.

    Attributes:
        split: the name of the split.
        where: the subject of errors: the split, and the input if there are several.
        position: the number of keys so far.
        is_numbered: without shuffling, whether keys are numbers; None before the first key.
    """

    def __init__(
        self,
        split: str,
        *,
        shuffled: bool,
        unsorted_keys: ExternalSorter,
        where: str = "",
        input_number: int | None = None,
    ) -> None:
        """``input_number`` is the number of the input of ``Pieces`` with these keys, whose examples stay together."""
        self.split = split
        self.where = where or f"split {split!r}"
        self.position = 0
        self.is_numbered: bool | None = None
        self._input_number = input_number
        self._first_number = (input_number or 0) << _EXAMPLES_BITS
        self._shuffled = shuffled
        self._unsorted_keys = unsorted_keys
        self._previous: Key | None = None

    def pair(self, item: object, *, position: int) -> tuple[Any, Any]:
        """Return ``item`` if it is a pair (key, example).

        Raises:
            BuildError: it is something else.
        """
        if isinstance(item, tuple | list) and len(item) == 2:
            return item[0], item[1]
        raise BuildError(
            f"{self.where}, example {position}: expected a pair (key, example), found {_kind(item)}",
            hint="Write yield key, example. The key is unique in its split, e.g. a file name or a row number.",
            details={"split": self.split, "position": position},
        )

    def sort_keys(self, keys: Sequence[Any]) -> tuple[SortKeys, list[str], BuildError | None]:
        """Return the sort keys and labels of the next ``keys``, and the error of the first bad one.

        If there is an error, the sort keys are those of the keys before it. It is a DuplicateKeyError if two
        consecutive keys are equal: a generator that never changes its key would otherwise run until the disk is full.
        """
        result = self._of_one_kind(keys)
        if result is not None:
            self.position += len(keys)
            self._previous = keys[-1]
            return *result, None
        sort_keys: list[bytes] = []
        labels: list[str] = []
        hashes: list[bytes] = []
        failed = None
        for key in keys:
            try:
                plain = plain_key(key)
                label = label_of(plain)
                sort_keys.append(self._sort_key(plain, label, hashes))
            except BuildError as error:
                failed = self._at_position(error)
                break
            labels.append(label)
            self.position += 1
        if hashes:
            empty = np.zeros(len(hashes), np.int64)
            self._unsorted_keys.add(
                KeyedFrames(join_sort_keys(hashes), self.stored_labels(labels[: len(hashes)]), Frames(b"", empty))
            )
        return join_sort_keys(sort_keys), labels, failed

    def stored_labels(self, labels: Sequence[str]) -> Sequence[str]:
        """The labels as a sorter stores them: with the number of the input, so that it can name the input."""
        if self._input_number is None:
            return labels
        return [numbered_label(label, self._input_number) for label in labels]

    def _of_one_kind(self, keys: Sequence[Any]) -> tuple[SortKeys, list[str]] | None:
        """The sort keys and labels of keys that are all text or all numbers, or None if one may be bad."""
        kinds = set(map(type, keys))
        kind = kinds.pop()
        if kinds or not (kind is int or (kind is str and self._shuffled)):
            return None
        if keys[0] == self._previous or any(map(eq, keys, islice(keys, 1, None))):
            return None
        try:
            if self._shuffled:
                sort_keys = hash_texts(self.split, map(str, keys) if kind is int else keys)
            elif self.is_numbered is not False:
                self.is_numbered = True
                sort_keys = join_sort_keys(map(number_key, keys))
            else:
                return None
            labels = list(map(repr, keys))
        except (BuildError, ValueError):
            return None
        if max(map(len, labels)) > LABEL_WIDTH:
            labels = list(map(label_of, keys))
        return sort_keys, labels

    def _sort_key(self, key: str | int | bytes, label: str, hashes: list[bytes]) -> bytes:
        if self.position and type(key) is type(self._previous) and key == self._previous:
            raise DuplicateKeyError(
                f"{self.where}: the key {label} is used twice, by examples {self.position - 1} and {self.position}",
                hint="Yield a key that is unique in the split, e.g. a file name or a row number.",
                details={"split": self.split, "keys": [label, label]},
            )
        self._previous = key
        if self._shuffled:
            return hash_key(self.split, key)
        is_number = isinstance(key, int)
        self.is_numbered = is_number if self.is_numbered is None else self.is_numbered
        if is_number is not self.is_numbered:
            raise BuildError(
                f"invalid key {label}: some keys are numbers and some are not, so they cannot be ordered",
                hint="With DISABLE_SHUFFLING, either all keys are numbers or none is.",
            )
        sort_key = number_key(key if isinstance(key, int) else self._first_number + self.position)
        if not is_number:
            hashes.append(hash_key(self.split, key))
        return sort_key

    def _at_position(self, error: BuildError) -> BuildError:
        if isinstance(error, DuplicateKeyError):
            return error
        located = BuildError(
            f"{self.where}, example {self.position}: {error.message}",
            hint=error.hint,
            details={**error.details, "split": self.split, "position": self.position},
        )
        located.__cause__ = error
        return located


def _located(problem: str, method: object, hint: str | None, **details: object) -> BuildError:
    error = BuildError(problem, hint=hint, details=details)
    add_place(error, function_place(method))
    return error


def _is_iterable(value: object) -> bool:
    return isinstance(value, Iterable) or hasattr(value, "__getitem__")


def _kind(value: object) -> str:
    return "None" if value is None else f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"
