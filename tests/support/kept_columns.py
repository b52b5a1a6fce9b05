"""Makes every reader read from kept columns, so that the tests of reading also run from them.

``REGISTRY_TEST_KEEP=memory`` or ``disk`` in the environment of pytest switches it on. Columns on disk are filled before
the first example is read, not in the background.
"""

from __future__ import annotations

from registry.errors import RegistryError
from registry.reading import examples, keeping
from registry.reading.keeping import Keep, SplitColumns, check_keep


def read_from_columns(mode: str) -> None:
    """Let every reader keep its columns in ``memory`` or on ``disk``, whatever it was asked for."""

    def force(keep: str | None) -> Keep | None:
        check_keep(keep)
        return check_keep(mode)

    class FilledAtOnce:
        error: Exception | None = None

        def __init__(self, split: SplitColumns, verify: str) -> None:
            try:
                split.fill(verify=verify)  # type: ignore[arg-type]  # it was checked
            except RegistryError as error:
                self.error = error

    examples.check_keep = force
    keeping._Filling = FilledAtOnce  # type: ignore[assignment,misc]  # has what is used of it
