"""What does a model get, and what is it to say? The supervised keys of a version, nested as its author wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from registry.errors import PreparedFormatError
from registry.model import DatasetMetadata

SupervisedKeys: TypeAlias = "str | tuple[SupervisedKeys, ...] | dict[str, SupervisedKeys]"
"""The name of a feature, or a tuple or dict of such."""


def supervised_keys(metadata: DatasetMetadata) -> SupervisedKeys | None:
    """The supervised keys of a version, or None where it has none.

    A plain tuple of names is a field of its own; any other structure is kept as it stood in ``dataset_info.json``.

    >>> supervised_keys(DatasetMetadata(supervised_keys=("image", "label")))
    ('image', 'label')
    >>> sides = {"dict": {"dict": {"x": {"featureKey": "left"}, "y": {"featureKey": "right"}}}}
    >>> kept = {"supervisedKeys": {"tuple": {"items": [sides, {"featureKey": "label"}]}}}
    >>> supervised_keys(DatasetMetadata(extra=kept))
    ({'x': 'left', 'y': 'right'}, 'label')

    Raises:
        PreparedFormatError: what is kept has another form.
    """
    if metadata.supervised_keys is not None:
        return metadata.supervised_keys
    kept = metadata.extra.get("supervisedKeys")
    return None if not kept else _read(kept, "supervisedKeys")


def _read(node: Any, key: str) -> SupervisedKeys:
    if isinstance(node, Mapping) and len(node) == 1:
        ((kind, inner),) = node.items()
        if kind in ("featureKey", "feature_key") and isinstance(inner, str):
            return inner
        if kind == "tuple" and isinstance(inner, Mapping) and isinstance(items := inner.get("items"), list):
            return tuple(_read(item, f"{key}.tuple.items[{place}]") for place, item in enumerate(items))
        if kind == "dict" and isinstance(inner, Mapping) and isinstance(items := inner.get("dict"), Mapping):
            return {name: _read(item, f"{key}.dict.dict.{name}") for name, item in sorted(items.items())}
    raise PreparedFormatError(
        f"{key}: no supervised keys: {node!r:.80}",
        hint="They are a featureKey, or a tuple or dict of such.",
        details={"key": key},
    )
