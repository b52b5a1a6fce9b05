"""The producer of a version, and the rule for whether another addition or import may continue the same dataset.

Derived names come from paths, and many paths end in the same name. A derived name continues a dataset only if the
dataset came from the same place. A name that the caller gives continues every dataset that was added, but no dataset of
another kind of producer, unless the caller passes ``replace``. For imports, a derived name follows the same rule; a
given name is always accepted, because the number of the version is given as well. The catalog stores the producer in
the event of the publication, and checks the rule in its transaction, because two users may add data under a new name at
the same moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from registry.errors import OtherSourceError, spell
from registry.model.reference import Reference

NameUse: TypeAlias = Literal["derived", "given", "replace"]
"""The origin of a dataset's name: derived from the path, given by the caller, or given with ``replace``."""

_WORDS: Final = {
    "build": "a builder",
    "publish": "a prepared folder",
    "import": "an import",
    "copy": "a copy from another catalog",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """The producer of a version. Its place may be a local path, so it is not written to any other file.

    Attributes:
        action: ``add``, ``build``, ``publish``, ``import`` or ``copy``; ``""`` if an older release did not record it.
        kind: the kind of the source of an addition, such as ``csv``; ``""`` if unknown.
        place: the absolute path or URL of an addition or import; None for Python objects, or if unknown.
    """

    action: str = ""
    kind: str = ""
    place: str | None = None

    def to_json(self) -> dict[str, str]:
        """The form in the event log."""
        place = {} if self.place is None else {"place": self.place}
        return {"action": self.action, **({"kind": self.kind} if self.kind else {}), **place}

    @classmethod
    def from_json(cls, stored: object) -> Producer:
        """Parse the form of ``to_json``. Malformed values become unknown."""
        found = stored if isinstance(stored, Mapping) else {}
        action, kind, place = (found.get(name) for name in ("action", "kind", "place"))
        return cls(
            action=action if isinstance(action, str) else "",
            kind=kind if isinstance(kind, str) else "",
            place=place if isinstance(place, str) else None,
        )

    def is_source_of(self, other: Producer) -> bool:
        """Whether both were added or both imported from the same place and, as far as known, are of the same kind."""
        is_alike = self.action == other.action and self.action in ("add", "import") and self.place is not None
        return is_alike and self.place == other.place and (self.kind == other.kind or not (self.kind and other.kind))

    def __str__(self) -> str:
        if self.action == "import" and self.place is not None:
            return f"an import of {self.place}"
        if self.action != "add":
            return _WORDS.get(self.action, "a publication that recorded no source")
        if self.place is None:
            return f"a Python object ({self.kind})" if self.kind else "an addition that recorded no place"
        return f"{self.place} ({self.kind})" if self.kind else self.place


def check_continues(name_use: NameUse, producer: Producer, earlier: Sequence[tuple[Reference, Producer]]) -> None:
    """Refuse an addition or import under a name that belongs to another source.

    Args:
        name_use: where the name comes from.
        producer: the addition or import.
        earlier: the versions of the config with their producers, newest first; of a new config, the newest version of
            each other config of the dataset. Empty if the name is new.

    Raises:
        OtherSourceError: the name was derived, and the newest version does not come from the same source; or it was
            given, and the newest version was not added, nor was any from this source.
    """
    if name_use == "replace" or not earlier:
        return
    is_new_config = len({reference.config for reference, _ in earlier}) > 1
    newest = earlier if is_new_config else earlier[:1]
    if any(other.is_source_of(producer) for _, other in (newest if name_use == "derived" else earlier)):
        return
    if name_use == "given" and any(other.action == "add" for _, other in newest):
        return
    raise other_source(earlier[0], producer, f"{earlier[0][0]} comes from {earlier[0][1]}, not from {producer}")


def other_source(earlier: tuple[Reference, Producer], producer: Producer, message: str) -> OtherSourceError:
    """The error for an addition or import that would continue an unrelated dataset."""
    reference, before = earlier
    # An import under a given name is always accepted, so the hint offers it.
    ways = (
        spell("name=NAME"),
        spell("name", reference.name) if producer.action == "import" else spell("replace", True),
    )
    return OtherSourceError(
        message,
        hint=f"Make it another dataset: {ways[0]}. Or make it the next version of {reference.dataset}: {ways[1]}",
        details={
            "dataset": reference.dataset,
            "version": str(reference),
            "producer": before.to_json(),
            "source": producer.to_json(),
            "options": list(ways),
        },
    )
