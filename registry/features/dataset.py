"""How is a dataset stored inside an example? As a Sequence of its examples, which are not put together when read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from registry.features.containers import Sequence
from registry.features.feature import feature_fault
from registry.features.ragged import Ragged


@dataclass(frozen=True, repr=False)
class Dataset(Sequence):
    """Any number of examples of one feature, most often a dict: a dataset inside an example, as steps of an episode.

    Takes any iterable of examples, or a dict of iterables; stored as a ``Sequence`` is. Decodes to ``NestedExamples``,
    which makes an example when it is asked for. Inside a Sequence it decodes as a Sequence; so it does with features
    in it that are not known.

    ``shape`` is that of one example, as in TFDS.
    """

    word: ClassVar[str] = "Dataset"

    @property
    def shape(self) -> Any:
        """Shape of one example."""
        return self.feature.shape

    def elements_of(self, value: Any, path: str) -> Any:
        """A list of examples, or a dict of lists."""
        if isinstance(value, Mapping):
            return {name: self.elements_of(inner, f"{path}/{name}") for name, inner in value.items()}
        if isinstance(value, (list, tuple, np.ndarray, Ragged)):
            return value
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise feature_fault(path, f"{type(value).__name__} is no dataset", "Give an iterable of examples.")
        return list(value)
