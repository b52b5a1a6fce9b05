"""The results of ``verify``: one report for each pin, with the place of each fault and both digests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from registry.errors import RecordsMismatchError, RegistryError


@dataclass(frozen=True, slots=True, kw_only=True)
class PinFault:
    """One difference between stored records and a pin.

    Attributes:
        code: the code of the error that describes it.
        problem: one sentence.
        filename: the file, or None if the fault is not in one file.
        record: the index of the record in the file, or None.
        position: the position of the record in the slice, or None.
        features: the features that differ, by key: the pinned digest over the slice, and the one found.
        pinned: the pinned sha256 of the record, the file or the slice, or None.
        found: the sha256 that was found instead, or None.
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
        """The fields as plain values."""
        features = {key: {"pinned": pinned, "found": other} for key, (pinned, other) in self.features.items()}
        return {**asdict(self), "features": features}


@dataclass(frozen=True, slots=True, kw_only=True)
class PinReport:
    """The result for one pin.

    Attributes:
        name: the name of the pin.
        dataset: the reference of its version.
        split: its split expression.
        num_examples: its number of records.
        folder: the path or URL of the folder whose files were read.
        proved_by: ``files`` if every file is the pinned one, ``records`` if only the records are; ``""`` if there are
            faults.
        deep: whether every record was also decoded.
        num_files: the number of files that were read.
        num_bytes: their size.
        faults: all differences.
        notes: remarks for the reader if there are no faults.
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
        """Raise a RecordsMismatchError that lists the faults, if there are any."""
        if self.faults:
            listed = "".join(f"\n  {fault.problem}" for fault in self.faults)
            raise RecordsMismatchError(
                f"{self.dataset} {self.split} in {self.folder} differs from the pin{listed}",
                hint="Get the pinned files: registry pin restore FILE --to DIR",
                details={"faults": [fault.to_json() for fault in self.faults]},
            )


def as_fault(error: RegistryError, filename: str | None = None) -> PinFault:
    """The fault for an error; ``filename`` replaces the name of the file in the error."""
    record = error.details.get("record")
    path = filename or error.details.get("path")
    return PinFault(
        code=error.code,
        problem=error.message,
        filename=str(path).rpartition("/")[2] if path else None,
        record=record if isinstance(record, int) else None,
    )
