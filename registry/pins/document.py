"""The fields of a pin file, their types, and the digest over all of them.

Pydantic validates each field strictly: a number is not accepted as text. Unknown fields of later releases are kept.
``consistency`` checks that the fields agree. The fields are listed in the order of the file.

The digest is the sha256 of the file's values as JSON with sorted keys, without spaces, in ASCII, and without the keys
``digest`` and ``finder``. Comments, the order of keys and the spelling of texts in YAML do not change it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from itertools import chain
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    Strict,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from registry.pins.record_digests import PRIME, RecordSums
from registry.pins.yaml_text import iter_leaves

LOCK_VERSION: Final = 1

_faults_left: ContextVar[list[int] | None] = ContextVar("registry_pin_faults_left", default=None)


class _TooManyFaultsError(Exception):
    """A file has more than ``_MOST_FAULTS`` invalid values. Pydantic would collect them all."""


def _counted(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """The result of ``check`` for ``value``. A failed check is counted."""
    try:
        return check(value)
    except ValidationError:
        left = _faults_left.get()
        if left is not None:
            left[0] -= 1
            if left[0] < 0:
                raise _TooManyFaultsError from None
        raise


_Counted = WrapValidator(_counted)

Sha256 = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$"), _Counted]
Sums = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}-[0-9a-f]{64}$")]
Line = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+$"), _Counted]
FeatureKey = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00]+$"), _Counted]
"""The name of a column, which has a line end if the header of a table has several lines."""

LongLine = Annotated[str, StringConstraints(min_length=1, max_length=100_000, pattern=r"^[^\x00-\x1f\x7f]+$"), _Counted]
"""Long enough for a union of many slices, and for a pin that is named after it."""

Page = Annotated[str, StringConstraints(max_length=1_000_000), _Counted]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(ge=1, lt=2**63)]


class _PinModel(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    @model_validator(mode="wrap")
    @classmethod
    def _count(cls, value: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        result: Self = _counted(value, check)
        return result


class AliasEntry(_PinModel):
    """The alias that was requested, and the event that set it."""

    name: Line
    set_at: Line
    set_by: Line
    message: Page = ""


class RangeEntry(_PinModel):
    """Records ``start``..``stop`` (stop excluded) of a split, counted over its shards."""

    split: Line
    start: Count
    stop: Count


class SpotEntry(_PinModel):
    """One record: its TFDS id, and the sha256 of its stored bytes."""

    id: Line
    sha256: Sha256


class RecordsEntry(_PinModel):
    """Digests over the slice's records, without the framing of their files. A row of typed columns is serialized.

    Attributes:
        ordered: sha256 over the sha256 of each record (32 bytes), in the order of ``ranges``.
        unordered: sha256 over the same digests, sorted: it does not depend on shards or order.
        finder: two sums that locate a changed record (``record_digests.RecordSums``).
        features: for each key of the records, a sha256 over their values under it (``record_digests.hash_leaf``).
        first: the first record; null in an empty slice, like the next two.
        middle: record ``num_examples // 2``.
        last: the last record.
    """

    ordered: Sha256
    unordered: Sha256
    finder: Sums
    features: dict[FeatureKey, Sha256]
    first: SpotEntry | None
    middle: SpotEntry | None
    last: SpotEntry | None

    @property
    def spots(self) -> tuple[tuple[str, SpotEntry | None], ...]:
        """The three records that are pinned one by one, with the names of their fields."""
        return ("first", self.first), ("middle", self.middle), ("last", self.last)


class OrderEntry(_PinModel):
    """The order in which the records are read; the fields have the names of ``registry.ReadConfig``."""

    shuffle: Literal["none", "files", "global"]
    seed: int | None = None
    global_seed: int | None = None
    op_seed_index: Count = 0
    reshuffle_each_iteration: bool | None = None
    generator: Line | None = None
    cycle_length: Positive
    block_length: Positive


class FeaturesEntry(_PinModel):
    """The schema of an example: ``json`` is the text of TFDS's features.json; ``labels`` are names of class labels."""

    digest: Sha256
    labels: dict[Line, Annotated[tuple[Page, ...], Strict(False), _Counted]]
    json_: Page = Field(alias="json")


class SplitEntry(_PinModel):
    """A split that the slice takes records from: its size, and the template of its file names."""

    name: Line
    num_examples: Count
    num_bytes: Count
    num_shards: Count
    template: Line


class FileEntry(_PinModel):
    """A shard file that contains records of the slice. ``locations`` are URLs of this single file."""

    name: Line
    split: Line
    index: Count
    first_example: Count
    num_examples: Count
    num_bytes: Count
    sha256: Sha256
    locations: Annotated[tuple[Line, ...], Strict(False)] = ()


class SourceEntry(_PinModel):
    """A source of the dataset."""

    url: LongLine
    sha256: Sha256 | None = None
    num_bytes: Count | None = None


class BuilderEntry(_PinModel):
    """The code that built the dataset. ``sha256`` is the digest of its source file."""

    code: Line
    package: Line
    version: Line
    sha256: Sha256 | None = None


class ProvenanceEntry(_PinModel):
    """Where the records come from."""

    homepage: str = ""
    sources: Annotated[tuple[SourceEntry, ...], Strict(False)] = ()
    builder: BuilderEntry | None = None
    version_to_prepare: Line | None = None
    packages: dict[Line, Line] = Field(default_factory=dict)


class PinEntry(_PinModel):
    """One slice of one dataset version."""

    name: LongLine
    request: Line
    dataset: Line
    config: Line | None
    version: Line
    why: Annotated[tuple[Page, ...], Strict(False)]
    status: Literal["canonical", "supported", "experimental", "deprecated", "yanked"]
    status_message: Page = ""
    experiments: dict[Line, Annotated[bool, _Counted]]
    alias: AliasEntry | None
    version_digest: Sha256
    version_slicing: Literal["documented", "tfds-4"]
    split: LongLine
    slicing: Literal["documented", "tfds-4"]
    rounding: Literal["closest", "pct1_dropremainder"] | None
    num_examples: Count
    ranges: Annotated[tuple[RangeEntry, ...], Strict(False)]
    records: RecordsEntry
    order: OrderEntry
    file_format: Literal["tfrecord", "array_record", "parquet", "parquet_columns"]
    disable_shuffling: bool
    splits: Annotated[tuple[SplitEntry, ...], Strict(False)]
    locations: Annotated[tuple[Line, ...], Strict(False)]
    files: Annotated[tuple[FileEntry, ...], Strict(False)]
    features: FeaturesEntry
    provenance: ProvenanceEntry
    license: Page
    citation: Page


class PinDocument(_PinModel):
    """A whole pin file."""

    lock_version: Annotated[int, Field(ge=1, le=LOCK_VERSION)]
    created_by: Line
    digest: Sha256
    finder: Sums
    pins: Annotated[tuple[PinEntry, ...], Strict(False), Field(min_length=1)]


def to_plain(entry: BaseModel) -> dict[str, Any]:
    """The fields of ``entry`` as plain values for YAML and JSON; unknown fields are last."""
    return entry.model_dump(mode="json", by_alias=True)


Fault = tuple[Sequence[str | int], str]
"""The keys that lead to a value, and the problem there."""

_MOST_FAULTS: Final = 10_000


def check_form(content: Any) -> tuple[PinDocument | None, list[Fault]]:
    """The document in ``content``, or None and its invalid values.

    A hostile file may contain millions of invalid values, and pydantic uses about a kilobyte for each. Validation
    therefore stops after ``_MOST_FAULTS`` of them.
    """
    token = _faults_left.set([_MOST_FAULTS])
    try:
        return PinDocument.model_validate(content), []
    except _TooManyFaultsError:
        return None, [((), f"more than {_MOST_FAULTS:,} values are malformed")]
    except ValidationError as error:
        result = error.errors(include_url=False, include_context=False, include_input=False)
        return None, [(fault["loc"], fault["msg"]) for fault in result]
    finally:
        _faults_left.reset(token)


OWN_KEYS: Final = ("digest", "finder")


def canonical_json(value: Any) -> str:
    """``value`` as the JSON text that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def seal(content: Mapping[str, Any]) -> tuple[str, str]:
    """The ``digest`` and ``finder`` of the values of a pin file. These two keys in ``content`` are ignored."""
    told = {key: value for key, value in content.items() if key not in OWN_KEYS}
    return digest_text(canonical_json(told)), str(_finder(told))


def digest_text(text: str | bytes) -> str:
    """``sha256:`` and the 64 hex digits of the sha256 over bytes, or over a text in UTF-8."""
    return "sha256:" + hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def find_changed(content: Mapping[str, Any], known: Mapping[str, Any]) -> str | None:
    """The key path of the only value that was changed since ``content`` was sealed; None for no change or several.

    It also finds a change of ``digest`` or ``finder``. ``known`` has the same values and the defaults of missing
    fields, so that a removed field is found.
    """
    told = {key: value for key, value in content.items() if key not in OWN_KEYS}
    digest, kept, found = seal(content)[0], RecordSums.parse(content["finder"]), _finder(told)
    if found == kept:
        return None if digest == content["digest"] else "digest"
    if digest == content["digest"]:
        return "finder"
    weight = kept.find_weight(found)
    return next((path for path, _ in chain(iter_leaves(told), iter_leaves(known)) if _weight(path) == weight), None)


def _finder(told: Mapping[str, Any]) -> RecordSums:
    total = weighted = 0
    sha256 = hashlib.sha256
    for path, value in iter_leaves(told):
        text = json.dumps(value) if isinstance(value, str) else canonical_json(value)
        digest = int.from_bytes(sha256(f"{path}\0{text}".encode("utf-8", "surrogatepass")).digest(), "big")
        total += digest
        weighted += _weight(path) * digest
    return RecordSums(total % PRIME, weighted % PRIME)


def _weight(path: str) -> int:
    return int.from_bytes(hashlib.sha256(path.encode("utf-8", "surrogatepass")).digest()[:16], "big")
