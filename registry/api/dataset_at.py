"""What did a reference give at a moment? A version as it stood then, and what became of it since."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from registry.api.dataset import Dataset
from registry.model import Choice, VersionState, describe_moment, describe_trouble

if TYPE_CHECKING:
    from registry.api.catalog import Catalog
    from registry.catalog import PastLookUp


class PastDataset(Dataset):
    """What a reference gave at a moment: the version with its state and the canonical version as they were then."""

    def __init__(self, past: PastLookUp, *, catalog: Catalog, moment: datetime) -> None:
        super().__init__(past.version, catalog=catalog, wanted=past.choice.wanted)
        self._past = past
        self._moment = moment

    @property
    def moment(self) -> datetime | None:
        """The moment at which it was looked up."""
        return self._moment

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know: how the version stood then, and what became of it since."""
        return tuple(filter(None, (self._note_then, self._note_since, self._note_future)))

    @property
    def yank_note(self) -> str | None:
        """The note of a version that was yanked then, or is since."""
        if self._past.version.state is VersionState.YANKED:
            return self._note_then
        return self._note_since if self._past.now.state is VersionState.YANKED else None

    @cached_property
    def why(self) -> tuple[str, ...]:
        """Why the look-up gave this version, in sentences."""
        return (f"As the event log has it for {self._when}:", *self._choice.sentences)

    @property
    def _when(self) -> str:
        return describe_moment(self._moment)

    @property
    def _note_then(self) -> str | None:
        trouble = describe_trouble(self.reference, self._candidate, self._version.canonical)
        return None if trouble is None else f"at {self._when}: {trouble}"

    @property
    def _note_since(self) -> str | None:
        now = self._past.now
        if now == self._candidate or now.state is VersionState.SUPPORTED:
            return None
        return f"since then {self.reference} is {now.described}"

    @property
    def _note_future(self) -> str | None:
        is_past = self._moment < datetime.now(UTC)
        return None if is_past else f"{self._when} is still to come: until then the answer may change"

    @cached_property
    def _choice(self) -> Choice:
        return self._past.choice
