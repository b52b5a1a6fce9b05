"""Which values of a pin file have not their form? Of a hostile file, with millions of such, those at its beginning.

pydantic collects every fault that it finds, about a kilobyte for two bytes of such a file. So a long file is checked at
the beginning of its lists first, and as a whole only where nothing is wrong there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from registry.pins.document import PinDocument, TooManyFaultsError, at_most

Fault = tuple[Sequence[str | int], str]
"""The keys that lead to a value, and what is wrong with it."""

_MOST_ITEMS: Final = 1000
_MOST_KEYS: Final = 200
_MOST_FAULTS: Final = 10_000


def check_form(content: Any) -> tuple[PinDocument | None, list[Fault]]:
    """The document that ``content`` is; or None, and what is wrong with its values."""
    from pydantic import ValidationError

    beginning = _Beginning()
    values = beginning.of(content)
    try:
        with at_most(_MOST_FAULTS):
            document = PinDocument.model_validate(values)
            return (PinDocument.model_validate(content) if beginning.is_cut else document), []
    except TooManyFaultsError:
        return None, [((), f"more than {_MOST_FAULTS:,} values have not the form that they should have")]
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return None, [(one["loc"], one["msg"]) for one in found]


class _Beginning:
    """Cuts lists once there were many items, and mappings with more keys than any part of a pin file has fields."""

    def __init__(self) -> None:
        self.is_cut = False
        self._num_items = 0

    def of(self, value: Any) -> Any:
        """``value`` with the beginnings of its lists."""
        if isinstance(value, dict):
            self.is_cut |= len(value) > _MOST_KEYS
            return {key: self.of(inner) for key, inner in islice(value.items(), _MOST_KEYS)}
        if not isinstance(value, list):
            return value
        found: list[Any] = []
        for item in value:
            if found and self._num_items >= _MOST_ITEMS:
                self.is_cut = True
                break
            self._num_items += 1
            found.append(self.of(item))
        return found
