"""Supervised keys: the structure of names that says which features of an example are input and target.

``views.py`` and the framework modules use it to turn an example, a batch or a tree of columns into tuples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from registry.errors import WrongTypeError
from registry.prepared.info import SupervisedKeys


def pick(keys: SupervisedKeys, example: Mapping[str, Any]) -> Any:
    """The values of an example or a batch, in the structure of ``keys``.

    >>> pick(({"x": "left", "y": "right"}, "label"), {"left": 1, "right": 2, "label": 3, "id": 4})
    ({'x': 1, 'y': 2}, 3)
    """
    if isinstance(keys, str):
        return example[keys]
    if isinstance(keys, tuple):
        return tuple(pick(key, example) for key in keys)
    return {name: pick(key, example) for name, key in keys.items()}


def places_of(keys: SupervisedKeys, at: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each feature name in ``keys`` with its path in the structure: dict keys and tuple positions.

    >>> list(places_of(({"x": "left", "y": "right"}, "label")))
    [('left', ('0', 'x')), ('right', ('0', 'y')), ('label', ('1',))]
    """
    if isinstance(keys, str):
        yield keys, at
        return
    if not isinstance(keys, tuple | dict):
        raise WrongTypeError(
            f"keys must be feature names, or tuples or dicts of them, not {type(keys).__name__}",
            hint='Write e.g. as_supervised("image", "label").',
        )
    for name, key in enumerate(keys) if isinstance(keys, tuple) else keys.items():
        yield from places_of(key, (*at, str(name)))


def names_in(keys: SupervisedKeys) -> list[str]:
    """The names of the features in ``keys``, each once, in their order.

    >>> names_in(("image", {"a": "label", "b": "image"}))
    ['image', 'label']
    """
    return list(dict.fromkeys(name for name, _ in places_of(keys)))
