"""One pin: a slice of a version, with its plan, its records and their proof.

Reading a pin needs only the pin file and the shards: no catalog is opened and no connection is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from registry.errors import RecordsMismatchError, UsageError
from registry.model import DatasetVersion, ProgressCallback, Reference, SlicingRule, count_progress
from registry.order import ReadConfig
from registry.pins.document import PinEntry
from registry.pins.layout import (
    PinnedRecords,
    config_of,
    features_of,
    merge_entries,
    plan_of,
    promises_of,
    reference_of,
    version_of,
)
from registry.pins.places import Places
from registry.splits import Plan
from registry.storage import open_store

if TYPE_CHECKING:
    from registry.features import FeaturesDict
    from registry.pins.report import PinReport
    from registry.reading import ReadableVersion, Reader, Slice, State
    from registry.splits import ReadInstruction
    from registry.storage import Store
    from registry.tfrecord import Verify


class Pin:
    """A pinned slice of a dataset version: which records, what proves them, and where they are looked for.

    Attributes:
        entry: all that the pin file says about it.
        places: where its files are looked for.
    """

    def __init__(self, entry: PinEntry, places: Places, *, parts: Sequence[PinEntry] = ()) -> None:
        """A pin of a file, or several pins of one version as one: then ``parts`` are their entries."""
        self.entry = entry
        self.places = places
        self._parts = tuple(parts) or (entry,)
        self._is_checked = False

    @property
    def name(self) -> str:
        """Its name in the pin file."""
        return self.entry.name

    @cached_property
    def reference(self) -> Reference:
        """The reference that names exactly the pinned version."""
        return reference_of(self.entry)

    @property
    def split(self) -> str:
        """The split expression."""
        return self.entry.split

    @property
    def num_examples(self) -> int:
        """Number of records."""
        return self.entry.num_examples

    @cached_property
    def plan(self) -> Plan:
        """Which records of which files."""
        return plan_of(self.entry)

    @cached_property
    def version(self) -> DatasetVersion:
        """The dataset version as the pin describes it."""
        return version_of(self.entry)

    @cached_property
    def features(self) -> FeaturesDict:
        """The schema of an example."""
        return features_of(self.entry)

    @cached_property
    def read_config(self) -> ReadConfig:
        """The order that was pinned."""
        return config_of(self.entry.order)

    @property
    def yank_note(self) -> str | None:
        """A note for readers if the version was yanked when it was pinned; else None."""
        if self.entry.status != "yanked":
            return None
        return f"{self.reference} was yanked when it was pinned: {self.entry.status_message}"

    def allowing(self, *, fetch: bool = False, allow_hosts: Iterable[str] = ()) -> Pin:
        """The same pin; more of the places that it names may be asked (see ``registry.load_pin``)."""
        if not fetch and not allow_hosts:
            return self
        return Pin(self.entry, self.places.allowing(fetch=fetch, hosts=allow_hosts), parts=self._parts)

    def store(self) -> Store:
        """The folder that holds all files of the pin, each with its pinned size.

        Raises:
            NotStoredError: there is none; the message lists the places.
            FetchNotAllowedError: the same, and places that the pin names were not asked.
        """
        return self.places.find(self.entry)

    def read(
        self,
        read_config: ReadConfig | None = None,
        *,
        state: State | Sequence[State] | None = None,
        process: tuple[int, int] = (0, 1),
        verify: Verify = "block",
        copy: bool = True,
        fetch: bool = False,
        allow_hosts: Iterable[str] = (),
    ) -> Reader:
        """The pinned examples as dicts of numpy arrays, in the pinned order; arguments as in ``Dataset.read``.

        The first, the middle and the last record are compared with the pin at once. Each file is proved to be the
        pinned one, or to hold all pinned records, when it is opened; each record is checked against its checksums.

        Args:
            read_config: another order; None is the pinned one.
            state: the result of ``Reader.state``, to continue from there.
            process: (index, count), if several processes share the examples.
            verify: how the checksums of records are checked.
            copy: False gives large values as read-only views of the mapped files.
            fetch: whether places that the pin names may be asked, as long as their addresses are public.
            allow_hosts: hosts, buckets and folders that may be asked; what the pin file was loaded with counts as well.

        Raises:
            NotStoredError: no place holds the files.
            FetchNotAllowedError: the same, and places that the pin names were not asked.
            RecordsMismatchError: the files hold other records.
            As ``Reader``, and while iterating as it does; ShardMismatchError also for a file with other records.
        """
        if fetch or allow_hosts:
            allowing = self.allowing(fetch=fetch, allow_hosts=allow_hosts)
            return allowing.read(read_config, state=state, process=process, verify=verify, copy=copy)
        from registry.reading import Reader

        self.check_samples()
        return Reader(
            self.readable, self.plan, read_config=read_config, state=state, process=process, verify=verify, copy=copy
        )

    def slice_of(
        self,
        split: str | ReadInstruction | None = None,
        read_config: ReadConfig | None = None,  # noqa: ARG002 (a pin has one order by default, and takes any)
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Slice:
        """The pinned slice, of its expression or None: see ``registry.reading.SplitSource``.

        The first, the middle and the last record are compared with the pin at once.

        Raises:
            UsageError: ``split`` is another expression than the pinned one, or is to be resolved in another way.
            As ``read``.
        """
        from registry.reading import Slice

        resolved = (self.entry.slicing, self.entry.rounding)
        if split not in (None, self.split) or (slicing, rounding) not in ((None, None), resolved):
            raise UsageError(
                f"the pin {self.name!r} is of {self.split}, not of {split!r:.100}",
                hint="Leave the split out: a pin has one.",
                details={"split": str(split)},
            )
        self.check_samples()
        return Slice(name=self.name, readable=self.readable, plan=self.plan)

    @property
    def readable(self) -> ReadableVersion:
        """The version with everything that is needed to read the pinned records, and no catalog.

        Its default order is the pinned one. Each file is proved to be the pinned one, or to hold the pinned records.
        The folder is looked for each time: the files may have been moved to another of its places.

        Raises:
            NotStoredError, FetchNotAllowedError: as ``store``.
        """
        from registry.reading import FileProof, make_readable

        hint = (
            "This is not the file that was pinned. `registry pin verify FILE` says what differs, and "
            "`registry pin restore FILE` gets the pinned files."
        )
        return make_readable(
            self.version,
            self.store(),
            features=self.features,
            default_order=self.read_config,
            proof=FileProof(promises=promises_of(self.entry), records=PinnedRecords(self._parts), hint=hint),
            indexes=self.places.indexes(),
        )

    def check_samples(self) -> None:
        """Compare the first, the middle and the last record with the pin, once.

        Raises:
            RecordsMismatchError: one of them differs.
            CorruptRecordError, ShardMismatchError, NotStoredError, StorageError: one cannot be read.
        """
        from registry.pins.verify import find_wrong_sample

        store = self.store()
        if self._is_checked or store.local_root is None:  # in other stores each record costs a request or more
            return
        fault = find_wrong_sample(self.entry, store, indexes=self.places.indexes())
        if fault is not None:
            raise RecordsMismatchError(
                f"{self.reference} {self.split} in {store.url} is not what was pinned\n  {fault.problem}",
                hint="registry pin verify tells more; registry pin restore gets the pinned files.",
                details={"faults": [fault.to_json()]},
            )
        self._is_checked = True

    def verify(
        self,
        *,
        folder: str | os.PathLike[str] | None = None,
        deep: bool = False,
        quick: bool = False,
        processes: int | None = None,
        progress: ProgressCallback | None = None,
        fetch: bool = False,
        allow_hosts: Iterable[str] = (),
    ) -> PinReport:
        """Prove that the records are the pinned ones, or say what differs: see ``registry.pins.verify``.

        ``folder`` is that of the files, or of another version of the dataset; None searches as ``read`` does, with its
        ``fetch`` and ``allow_hosts``. ``deep``, ``quick`` and ``processes`` are as in ``verify_pin``; ``progress`` is
        called with a ``Progress``, in bytes.

        Raises:
            NotStoredError: there is nothing to verify.
            FetchNotAllowedError: the same, and places that the pin names were not asked.
        """
        from registry.pins.verify import verify_pin

        places = self.allowing(fetch=fetch, allow_hosts=allow_hosts).places
        store = places.within_bundle().find_any(self.entry) if folder is None else open_store(folder)
        indexes = self.places.indexes()
        # Files are hashed, and then, unless quick, records.
        total = (1 if quick else 2) * sum(file.num_bytes for file in self.entry.files)
        advance = count_progress(progress, "verifying", self.name, total=total, unit="bytes")
        return verify_pin(
            self.entry, store, deep=deep, quick=quick, indexes=indexes, processes=processes, advance=advance
        )

    def __repr__(self) -> str:
        return f"<Pin {self.name}: {self.reference} {self.split}, {self.num_examples} examples>"


def join_pins(pins: Sequence[Pin]) -> Pin:
    """The first of some pins of one version with the splits and files of all of them: it can read all their slices."""
    if len(pins) == 1:
        return pins[0]
    parts = [pin.entry for pin in pins]
    return Pin(merge_entries(parts), pins[0].places, parts=parts)
