"""Makes every reader read from kept columns, so that the tests of reading also run from them.

``REGISTRY_TEST_KEEP=memory`` or ``disk`` in the environment of pytest switches it on. Columns on disk are filled before
the first example is read, not in the background; those of folders that were never published are kept in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from registry.errors import RegistryError
from registry.reading import examples, keeping
from registry.reading.keeping import ColumnKeeper, Keep
from registry.reading.split_columns import SplitColumns


def read_from_columns(mode: str) -> None:
    """Let every reader keep its columns in ``memory`` or on ``disk``, whatever it was asked for."""

    class ForcedKeeper(ColumnKeeper):
        def __init__(self, _mode: Keep | None, readable: Any, plan: Any, *options: Any) -> None:
            forced: Keep = "disk" if mode == "disk" and readable.facts.content_digest and readable.cache else "memory"
            super().__init__(forced, readable, plan, *options)

        def choose(self) -> None:
            super().choose()
            super().choose()  # reads what the first call filled

    class FilledAtOnce:
        error: Exception | None = None

        def __init__(self, splits: Sequence[SplitColumns]) -> None:
            try:
                for split in splits:
                    split.fill()
            except RegistryError as error:
                self.error = error

        def wait(self) -> None:
            pass

        def allow(self, seconds: float) -> bool:  # noqa: ARG002 (as Filling)
            return False

    examples.ColumnKeeper = ForcedKeeper  # type: ignore[misc]
    keeping.Filling = FilledAtOnce  # type: ignore[assignment,misc]  # has what is used of it
