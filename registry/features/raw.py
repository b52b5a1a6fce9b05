"""What of a feature that is not known here? Its description as it stands in features.json, and what a record stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from registry.features.feature import TEXT, FlatValue, Leaf, Part, Shape, feature_fault


@dataclass(frozen=True, kw_only=True, repr=False)
class RawFeature(Leaf):
    """A feature of a class, or of a form, that is not known here. It can be read, not written.

    Decodes to what the record stores under its key: an array of int64 or float32, or an object array of ``bytes``.
    Where there is no such key: a dict of what is stored under each ``key/suffix``, by suffix; empty if there is none.

    Attributes:
        class_name: TFDS's name of its class, or another package's.
        node: the object in features.json, which is written as it was.
    """

    class_name: str
    node: Mapping[str, Any] = field(hash=False, repr=False)

    @property
    def shape(self) -> Shape:
        """One dimension of any size."""
        return (None,)

    @property
    def dtype(self) -> Any:
        """Any."""
        return TEXT

    @property
    def parts(self) -> tuple[Part, ...]:
        """None that is known."""
        return ()

    @property
    def holds_objects(self) -> bool:
        """Always."""
        return True

    def flatten(self, value: Any, path: str) -> NoReturn:  # noqa: ARG002 - as every leaf
        """Raises FeatureError."""
        raise feature_fault(
            path,
            f"values of the feature {self.class_name!r:.200} cannot be encoded, as it is not known here",
            "Declare it as one of registry.features, such as a Tensor of what it stores.",
        )

    def flatten_many(self, values: Any, path: str) -> NoReturn:
        """Raises FeatureError."""
        self.flatten(values, path)

    def restore(self, flat: tuple[FlatValue, ...], count: int | None, path: str) -> NoReturn:
        """Has no parts to restore from: see ``take``."""
        raise NotImplementedError(path)

    def take(self, flat: Mapping[str, FlatValue], path: str, others: frozenset[str]) -> Any:
        """What ``flat`` holds under ``path``; ``others`` are the keys of known features."""
        if path in flat and path not in others:
            return _as_array(flat[path])
        prefix = f"{path}/"
        keys = sorted(key for key in flat if key.startswith(prefix) and key not in others)
        return {key.removeprefix(prefix): _as_array(flat[key]) for key in keys}


def _as_array(value: FlatValue) -> Any:
    if isinstance(value, np.ndarray):
        return value
    array = np.empty(len(value), TEXT)
    array[:] = value
    return array


def describe_unknown(unknown: Mapping[str, str]) -> str | None:
    """What to tell of ``FeaturesDict.unknown_features()``; None where all are known.

    >>> describe_unknown({"video": "lab.features.Lidar"})
    "the feature 'video' (lab.features.Lidar) is not known here: it is read as the raw values that are stored"
    """
    if not unknown:
        return None
    named = [f"{path!r} ({class_name[:80]})" for path, class_name in list(unknown.items())[:3]]
    if len(unknown) == 1:
        return f"the feature {named[0]} is not known here: it is read as the raw values that are stored"
    more = f" and {len(unknown) - len(named)} more" if len(unknown) > len(named) else ""
    return f"the features {', '.join(named)}{more} are not known here: they are read as the raw values that are stored"
