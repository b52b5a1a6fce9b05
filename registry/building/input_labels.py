r"""Names the inputs of ``Pieces`` whose examples have the same key.

A key that is used twice is detected while records are sorted, on any machine, when their inputs are no longer
available. The label of a record therefore contains the number of its input, ``'a.png'\x00 17``, and the process that
draws the inputs stores the label of each input.
"""

from __future__ import annotations

from array import array
from tempfile import SpooledTemporaryFile
from typing import Final, Self

from registry.building.keys import label_of
from registry.building.run_files import storing
from registry.errors import DuplicateKeyError

_SEPARATOR: Final = "\0"  # repr escapes it, so labels do not contain it
_MOST_MEMORY: Final = 2**20


def numbered_label(label: str, number: int) -> str:
    """The label of a key of input ``number``."""
    return f"{label}{_SEPARATOR}{number}"


def split_label(label: str) -> tuple[str, int | None]:
    """The label of a key as errors show it, and the number of its input; None if the label has none.

    >>> split_label(numbered_label("'a.png'", 17)), split_label("'a.png'")
    (("'a.png'", 17), ("'a.png'", None))
    """
    text, separator, number = label.partition(_SEPARATOR)
    return text, int(number) if separator else None


class InputLabels:
    """The inputs that were drawn, as errors show them. A context manager.

    There may be millions, so they are in a temporary file.
    """

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=_MOST_MEMORY)  # noqa: SIM115 (see __exit__)
        self._ends = array("Q")

    def add(self, given: object) -> None:
        """Add the next input."""
        with storing(None):
            self._file.write(label_of(given).encode("utf-8", "surrogatepass"))
            self._ends.append(self._file.tell())

    def add_to(self, error: DuplicateKeyError) -> None:
        """Append the inputs of both keys to the message of ``error``, if it has their numbers."""
        numbers = error.details.pop("input_numbers", None)
        if numbers is not None:
            first, second = labels = [self._label(number) for number in numbers]
            where = f"input {first}" if numbers[0] == numbers[1] else f"inputs {first} and {second}"
            error.message = f"{error.message}, in {where}"
            error.args = (error.message,)
            error.details["inputs"] = labels

    def _label(self, number: int) -> str:
        start = self._ends[number - 1] if number else 0
        with storing(None):
            self._file.seek(start)
            return self._file.read(self._ends[number] - start).decode("utf-8", "surrogatepass")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
