"""Reports values that a feature does not allow, such as class 3 of three classes, with their split, file and record.

    Outside of each run of records (registry.features.limits) -> ValuesOutside of each split and feature

The author of the schema decides the consequence: ``registry add`` refuses such values, whether it encodes records or
reads them in place. An import or a prepared folder has a schema that others declared, so it is published with a
warning. ``verify --deep`` only reports them, because the files are unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from registry.errors import UnusableRowsError, ValuesOutsideWarning, warn
from registry.features import Outside, merge_outside
from registry.model import Reference, Split

_MOST_NAMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesOutside:
    """The records of a split in which a feature has values that it does not allow.

    Attributes:
        feature: the path of the feature.
        limits: the values that the feature allows, e.g. ``in 0..2, or -1 for no label``.
        split: the name of the split.
        num_records: the number of records with such a value.
        num_examples: the number of records of the split.
        first_record: the lowest index of such a record in the split.
        filename: the file of that record.
        record: the index of that record in its file.
        value: the first such value in it, as text.
    """

    feature: str
    limits: str
    split: str
    num_records: int
    num_examples: int
    first_record: int
    filename: str
    record: int
    value: str

    def __str__(self) -> str:
        has = "has" if self.num_records == 1 else "have"
        return (
            f"feature {self.feature!r} must be {self.limits}: {self.num_records:,} of {self.num_examples:,} records "
            f"{has} other values in the split {self.split}; the first, record {self.first_record} "
            f"(record {self.record} of {self.filename}), has {self.value}"
        )


def locate_outside(splits: Sequence[Split], faults: Mapping[str, Iterable[Outside]]) -> tuple[ValuesOutside, ...]:
    """The results of all runs, by split, merged and with file names. Their order is that of splits and features."""
    located = []
    for split in splits:
        for fault in sorted(merge_outside(faults.get(split.name, ())), key=lambda run: run.feature):
            index = split.shard_lengths.shard_of(fault.first_record)
            located.append(
                ValuesOutside(
                    feature=fault.feature,
                    limits=fault.limits,
                    split=split.name,
                    num_records=fault.num_records,
                    num_examples=split.num_examples,
                    first_record=fault.first_record,
                    filename=split.filename(index),
                    record=fault.first_record - split.shard_lengths.start(index),
                    value=fault.value,
                )
            )
    return tuple(located)


def warn_outside(reference: Reference, faults: Iterable[ValuesOutside]) -> None:
    """Issue a ``ValuesOutsideWarning`` for each of ``faults``."""
    for fault in faults:
        warn(f"{reference}: {fault}", ValuesOutsideWarning)


def refuse_outside(faults: Sequence[ValuesOutside], *, command: str | None) -> None:
    """Raise an UnusableRowsError that names ``faults``, if there are any.

    Args:
        faults: the values.
        command: the command that publishes the same files with a warning, or None.
    """
    if not faults:
        return
    lines = [f"  {fault}" for fault in faults[:_MOST_NAMED]]
    lines += [f"  and {len(faults) - len(lines):,} more features"] if faults[_MOST_NAMED:] else []
    hint = (
        "Correct the schema, or write the files again."
        if command is None
        else f"Write the files again. To publish them unchanged, with a warning: {command}"
    )
    bad: list[dict[str, Any]] = [
        {"file": fault.filename, "record": fault.record, "reason": f"feature {fault.feature!r} has {fault.value}"}
        for fault in faults[:100]
    ]
    outside = [asdict(fault) for fault in faults[:100]]
    raise UnusableRowsError(
        "\n".join(["records have values that the schema does not allow", *lines]),
        hint=hint,
        details={"num_bad": sum(fault.num_records for fault in faults), "bad": bad, "outside": outside},
    )
