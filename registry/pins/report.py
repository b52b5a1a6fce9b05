"""The result of a verification: one report for each pin, and its faults with their place and both digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from registry.errors import RecordsMismatchError, RegistryError


@dataclass(frozen=True, slots=True, kw_only=True)
class PinFault:
    """One difference from a pin.

    Attributes:
        code: of the error that it would raise.
        problem: in one sentence.
        filename, record: the file, and the index of the record in it; None if the fault is not of one.
        position: the record's place in the slice.
        features: the features that differ, by key: the pinned digest over the slice, and the one found.
        pinned, found: the sha256 of the record, or of the file, or of the slice.
    """

    code: str = RecordsMismatchError.code
    problem: str
    filename: str | None = None
    record: int | None = None
    position: int | None = None
    features: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    pinned: str | None = None
    found: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        features = {key: {"pinned": one, "found": other} for key, (one, other) in self.features.items()}
        return {**asdict(self), "features": features}


@dataclass(frozen=True, slots=True, kw_only=True)
class PinReport:
    """The result for one pin.

    Attributes:
        name, dataset, split, num_examples: the pin.
        folder: where its records were read.
        proved_by: ``files`` if every file is the pinned one, ``records`` if only the records are; ``""`` if there are
            faults.
        deep: whether every record was also decoded.
        num_files, num_bytes: the number of files that were read, and their size.
        notes: what a reader should know although there are no faults.
    """

    name: str
    dataset: str
    split: str
    num_examples: int
    folder: str
    proved_by: str
    deep: bool
    num_files: int
    num_bytes: int
    faults: tuple[PinFault, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether the records are the pinned ones."""
        return not self.faults

    def require_sound(self) -> None:
        """Raise RecordsMismatchError that lists the faults, if there are any."""
        if self.faults:
            listed = "".join(f"\n  {fault.problem}" for fault in self.faults)
            raise RecordsMismatchError(
                f"{self.dataset} {self.split} in {self.folder} is not what was pinned{listed}",
                hint="Get the pinned files: registry pin restore FILE --to DIR",
                details={"faults": [fault.to_json() for fault in self.faults]},
            )


def as_fault(error: RegistryError, filename: str | None = None) -> PinFault:
    """The fault that an error reports; ``filename`` if the error does not name the file as the pin does."""
    record = error.details.get("record")
    path = filename or error.details.get("path")
    return PinFault(
        code=error.code,
        problem=error.message,
        filename=str(path).rpartition("/")[2] if path else None,
        record=record if isinstance(record, int) else None,
    )
