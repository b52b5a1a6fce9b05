"""Defines ``Pieces``: a split whose examples come from many inputs, which several processes or machines generate.

    inputs  --one or some of them at a time-->  generate  -->  keyed examples  -->  a sorted run  -->  shards

Records are sorted by their keys, so the files are the same for any division of the inputs, any number of processes and
any order in which they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from registry.lazy import lazy_types

if TYPE_CHECKING:
    from registry.building.keys import Key
else:
    lazy_types(globals(), {"registry.building.keys": "Key"})


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The examples of one split, generated from one input after the other, or from many at the same time.

    ``DatasetBuilder.splits`` may return it in place of a generator. A build calls ``generate`` in worker processes, or
    on the machines of a cluster, so it must depend on nothing but its input and the builder.

    Attributes:
        inputs: what the examples are made from, such as paths of files; a list, or a generator of millions. An input
            that cannot be pickled is used in this process, and a warning says so.
        generate: returns the pairs (key, example) of one input. A key is unique in the whole split. A function of a
            module or a method, not a lambda: if it cannot be pickled, it runs in this process, and a warning says so.
            If the nodes of a cluster cannot import it, the build fails.

    >>> from registry.features import FeaturesDict, Scalar
    >>> from registry.building import DatasetBuilder
    >>> class Squares(DatasetBuilder):
    ...     VERSION = "1.0.0"
    ...
    ...     def features(self):
    ...         return FeaturesDict({"square": Scalar("int64")})
    ...
    ...     def splits(self):
    ...         return {"train": Pieces(["0-4", "5-9"], self._generate)}
    ...
    ...     def _generate(self, numbers):
    ...         first, last = map(int, numbers.split("-"))
    ...         for number in range(first, last + 1):
    ...             yield number, {"square": number * number}
    >>> [key for key, _ in Squares()._generate("5-9")]
    [5, 6, 7, 8, 9]
    """

    inputs: Iterable[Any]
    generate: Callable[[Any], Iterable[tuple[Key, Any]]]
