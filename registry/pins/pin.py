"""``Pin``: one pinned slice of a dataset version. It reads and verifies the records.

A pin needs only its pin file and the shards. It opens no catalog and makes no connection that the reader did not allow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from registry.argument_types import typed_methods
from registry.engines import announces
from registry.errors import RecordsMismatchError, UsageError
from registry.model import DatasetVersion, ProgressCallback, Reference, SlicingRule, Split, count_progress
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
    from registry.pins.verify import PinReport
    from registry.reading import Keep, ReadableVersion, Reader, Slice, State
    from registry.splits import ReadInstruction
    from registry.storage import Store
    from registry.tfrecord import Verify


@typed_methods
class Pin:
    """A pinned slice of a dataset version: its records, their digests, and the places to search for their files.

    Pins come from a ``PinFile``: ``registry.load_pin("dataset.lock.yaml")["train"]``.

    Attributes:
        entry: the fields of the pin in its file.
        places: the places that are searched for its files.

    >>> import registry, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with registry.connect(f"{folder.name}/catalog.db") as catalog:
    ...     built = catalog.build("digits")
    ...     pins = catalog.dataset("digits:1.*").pin({"train": "train[:80%]"})
    ...     data_dir = str(catalog.data_dir)
    >>> path = pins.save(f"{folder.name}/dataset.lock.yaml")
    >>> train = registry.load_pin(path, data_dir=data_dir)["train"]
    >>> train
    <Pin train: digits:1.0.0 train[:80%], 1438 examples>
    >>> sorted(train.read()[0]), train.verify().is_sound
    (['image', 'label'], True)
    >>> folder.cleanup()
    """

    def __init__(self, entry: PinEntry, places: Places, *, parts: Sequence[PinEntry] = ()) -> None:
        """One pin of a file. For several pins of one version read as one, ``parts`` holds their entries."""
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
        """The exact reference of the pinned version, e.g. ``digits:1.0.0``."""
        return reference_of(self.entry)

    @property
    def split(self) -> str:
        """The split expression."""
        return self.entry.split

    @property
    def num_examples(self) -> int:
        """Number of pinned records."""
        return self.entry.num_examples

    @cached_property
    def plan(self) -> Plan:
        """The records to read from each file."""
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
        """The pinned reading order."""
        return config_of(self.entry.order)

    @property
    def yank_note(self) -> str | None:
        """A note for readers if the version was yanked when it was pinned, else None."""
        if self.entry.status != "yanked":
            return None
        return f"{self.reference} was yanked when it was pinned: {self.entry.status_message}"

    def allowing(self, *, fetch: bool = False, allow_hosts: Iterable[str] = ()) -> Pin:
        """A copy of this pin that may read from more of the places that it names.

        Args:
            fetch: allow requests to the locations that the pin names.
            allow_hosts: allow requests to these hosts, networks, buckets and folders; see ``load_pin``.

        Raises:
            UsageError: an allowed host is not a valid host, bucket or folder.
        """
        if not fetch and not allow_hosts:
            return self
        return Pin(self.entry, self.places.allowing(fetch=fetch, hosts=allow_hosts), parts=self._parts)

    def store(self) -> Store:
        """The folder that contains all files of the pin, each with its pinned size.

        Raises:
            NotStoredError: no folder has all files; the message lists the places that were searched.
            StorageUnavailableError: no folder has all files, and one of the places could not be reached.
            FetchNotAllowedError: no folder has all files, and the pin names places that you did not allow.
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
        keep: Keep | None = "auto",
        fetch: bool = False,
        allow_hosts: Iterable[str] = (),
    ) -> Reader:
        """A reader of the pinned examples, dicts of numpy arrays, in the pinned order.

        The first, the middle and the last record are compared with the pin at once. Each file is checked when it is
        opened: it must be the pinned file, or contain all pinned records. Each record is checked against its checksums.

        Args:
            read_config: another order. None uses the pinned order.
            state: the result of ``Reader.state``, to continue an earlier read.
            process: (index, count), if several processes share the examples.
            verify: how the checksums of records are checked: ``block``, ``record`` or ``off``.
            copy: False returns large values as read-only views of the mapped files.
            keep: where to keep decoded columns, see ``Dataset.read``.
            fetch: allow downloads from every place that the pin names, if its address is public.
            allow_hosts: hosts, buckets and folders to allow, in addition to those that the pin file was loaded with.

        Raises:
            NotStoredError: no place has the files.
            FetchNotAllowedError: no allowed place has the files, and the pin names places that you did not allow.
            RecordsMismatchError: the files contain other records.
            UsageError: ``read_config`` or ``process`` is invalid.
            StateMismatchError: ``state`` belongs to another read.
            CorruptRecordError, CorruptExampleError, ShardMismatchError: while reading, a record or file is damaged, or
                is not the pinned one.
            StorageError: a file cannot be read.
        """
        if fetch or allow_hosts:
            allowing = self.allowing(fetch=fetch, allow_hosts=allow_hosts)
            return allowing.read(read_config, state=state, process=process, verify=verify, copy=copy, keep=keep)
        from registry.reading import Reader

        self.check_samples()
        return Reader(
            self.readable,
            self.plan,
            read_config=read_config,
            state=state,
            process=process,
            verify=verify,
            copy=copy,
            keep=keep,
        )

    def slice_of(
        self,
        split: str | ReadInstruction | None = None,
        read_config: ReadConfig | None = None,  # noqa: ARG002 (a pin has one order by default, and takes any)
        *,
        slicing: SlicingRule | str | None = None,
        rounding: str | None = None,
    ) -> Slice:
        """The pinned slice, for functions that accept a dataset (``registry.reading.SplitSource``).

        The first, the middle and the last record are compared with the pin at once.

        Args:
            split: None, or the pinned expression.
            read_config: ignored, because a pin can be read in any order.
            slicing: None, or the pinned slicing rule.
            rounding: None, or the pinned rounding.

        Raises:
            UsageError: ``split``, ``slicing`` or ``rounding`` differs from the pinned one.
            NotStoredError, FetchNotAllowedError: the files are not found, as in ``read``.
            RecordsMismatchError: the files contain other records.
        """
        from registry.reading import Slice

        resolved = (self.entry.slicing, self.entry.rounding)
        if split not in (None, self.split) or (slicing, rounding) not in ((None, None), resolved):
            raise UsageError(
                f"the pin {self.name!r} contains {self.split}, not {split!r:.100}",
                hint="Leave out the split: a pin has exactly one split.",
                details={"split": str(split)},
            )
        self.check_samples()
        return Slice(name=self.name, readable=self.readable, plan=self.plan)

    @property
    def readable(self) -> ReadableVersion:
        """Everything that is needed to read the pinned records without a catalog.

        Its default order is the pinned order. Each file is checked when it is opened: it must be the pinned file, or
        contain the pinned records. The folder is searched for on each access, because the files may have been moved.

        Raises:
            NotStoredError: no place has the files.
            FetchNotAllowedError: no allowed place has the files, and the pin names places that you did not allow.
        """
        from registry.reading import FileProof, make_readable

        hint = (
            "This is not the pinned file. `registry pin verify FILE` shows what differs, and "
            "`registry pin restore FILE --to DIR` gets the pinned files."
        )
        return make_readable(
            self.version,
            self.store(),
            features=self.features,
            default_order=self.read_config,
            proof=FileProof(promises=promises_of(self.entry), records=PinnedRecords(self._parts), hint=hint),
            indexes=self.places.indexes(),
            cache=self.places.cache,
        )

    def check_samples(self) -> None:
        """Compare the first, the middle and the last record with the pin, once.

        Raises:
            RecordsMismatchError: one of them differs.
            CorruptRecordError, ShardMismatchError, NotStoredError, StorageError: one of them cannot be read.
        """
        from registry.pins.verify import find_wrong_sample

        store = self.store()
        if self._is_checked or store.local_root is None:  # in other stores each record costs a request or more
            return
        fault = find_wrong_sample(self.entry, store, indexes=self.places.indexes())
        if fault is not None:
            raise RecordsMismatchError(
                f"{self.reference} {self.split} in {store.url} differs from the pin\n  {fault.problem}",
                hint="`registry pin verify FILE` shows what differs, and "
                "`registry pin restore FILE --to DIR` gets the pinned files.",
                details={"faults": [fault.to_json()]},
            )
        self._is_checked = True

    @announces("verifying", "self")
    def verify(
        self,
        *,
        folder: str | os.PathLike[str] | None = None,
        splits: Mapping[str, Split] | None = None,
        deep: bool = False,
        quick: bool = False,
        processes: int | None = None,
        progress: ProgressCallback | None = None,
        fetch: bool = False,
        allow_hosts: Iterable[str] = (),
    ) -> PinReport:
        """Prove that the stored records are the pinned ones, or report what differs.

        Args:
            folder: the folder of the files, or of another version of the dataset, which may have other shards. None
                searches like ``read``; if the pin file is in an unpacked bundle, only the bundle is searched.
            splits: the splits of the version in ``folder`` by name, such as ``Dataset.splits``; None reads them from
                ``dataset_info.json`` in it.
            deep: also decode every record, and check everything that the pin says about the records.
            quick: if all files are the pinned ones, check only three records.
            processes: number of workers; None uses one for each core if there is enough data.
            progress: called with a ``Progress``, in bytes.
            fetch: see ``read``.
            allow_hosts: see ``read``.

        Returns:
            A report with the folder that was verified, how the records were proved, and all faults. A difference is
            reported, not raised: see ``PinReport.is_sound`` and ``require_sound``.

        Raises:
            NotStoredError: no place has a file of the pin or a version of the dataset.
            FetchNotAllowedError: no allowed place has them, and the pin names places that you did not allow.
            UsageError: both ``deep`` and ``quick`` are given, or ``processes`` is not a positive whole number.
            StorageError: ``folder`` cannot be opened or read.
        """
        from registry.pins.verify import PinVerification

        places = self.allowing(fetch=fetch, allow_hosts=allow_hosts).places
        store = places.within_bundle().find_any(self.entry) if folder is None else open_store(folder)
        # Files are hashed, and then, unless quick, records.
        total = (1 if quick else 2) * sum(file.num_bytes for file in self.entry.files)
        advance = count_progress(progress, "verifying", self.name, total=total, unit="bytes")
        indexes = self.places.indexes()
        verification = PinVerification(
            entry=self.entry, store=store, deep=deep, indexes=indexes, processes=processes, advance=advance
        )
        return verification.run(splits, quick=quick)

    def _repr_html_(self) -> str:
        return pins_html(repr(self), [self])

    def __repr__(self) -> str:
        return f"<Pin {self.name}: {self.reference} {self.split}, {self.num_examples} examples>"


def pins_html(title: str, pins: Iterable[Pin]) -> str:
    """HTML of pins: a table."""
    from registry.markup import panel, table

    heads = ("pin", "version", "split", "examples", "files", "status")
    rows = ((pin.name, pin.reference, pin.split, pin.num_examples, len(pin.plan), pin.entry.status) for pin in pins)
    return panel(title, table(heads, rows))


def join_pins(pins: Sequence[Pin]) -> Pin:
    """One pin with the splits and files of several pins of one version, to read all their slices."""
    if len(pins) == 1:
        return pins[0]
    parts = [pin.entry for pin in pins]
    return Pin(merge_entries(parts), pins[0].places, parts=parts)
