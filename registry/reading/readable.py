r"""``ReadableVersion``: everything needed to read a version: facts, files, schema and default order.

    a version of a catalog, now or at a moment  \
    a pin                                        >  ReadableVersion  --Reader(readable, plan)-->  examples
    a prepared folder                           /

``make_readable`` creates it for a published version, and ``readable_folder`` for a folder that was never published.
Reading, pinning, verifying and exporting take the value and do not depend on where it came from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from registry.features import FeaturesDict, features_from_json
from registry.features.schema import features_to_json
from registry.model import DatasetVersion, Promises, SlicingRule
from registry.order import ReadConfig, check_read_config
from registry.prepared import PreparedDataset
from registry.reading.attached import AttachedColumns
from registry.shards import SEQUENTIAL_FORMATS, MirroredStore, ProvedStore, RecordsProof
from registry.storage import Store
from registry.storage.cache import FileCache
from registry.tfrecord import IndexFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProof:
    """What must be proved of every file of a version before its first byte is used: see ``shards.ProvedStore``.

    Attributes:
        promises: the size, number of records and sha256 of each file.
        hint: what to do about a file that differs.
        records: proves another file by its records, if it has the same ones; None accepts only the promised file.
    """

    promises: Promises
    hint: str
    records: RecordsProof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableVersion:
    """Everything needed to read a version, wherever it was found.

    Attributes:
        facts: name, number, splits, slicing rule and file format.
        store: the folder of the shards, unproved; ``files`` returns a store that proves them.
        features: the schema of an example.
        default_order: the order of a read without a ``ReadConfig``.
        proof: what proves the files; None for a folder that was never published, for which no digests exist.
        indexes: the cache of record places and of stamps of proved files; None caches nothing.
        cache: the cache of files of other machines; None caches nothing.
        mirrors: paths and URLs of other folders with the same files, which ``files`` reads where ``store`` fails.
        attached: the columns that are attached to the version; None for a version that has no attachments.
    """

    facts: DatasetVersion
    store: Store
    features: FeaturesDict
    default_order: ReadConfig
    proof: FileProof | None = None
    indexes: IndexFolder | None = None
    cache: FileCache | None = None
    mirrors: tuple[str, ...] = ()
    attached: AttachedColumns | None = None

    @property
    def file_format(self) -> str:
        """The format of the files, such as ``tfrecord``; see ``registry.shards``."""
        return self.facts.file_format

    @property
    def identity(self) -> str:
        """The exact version and its content digest, for comparison with saved states; ``""`` if it is not published.

        A version has the same identity whether it was found in a catalog or in a pin.
        """
        digest = self.facts.content_digest
        return f"{self.facts.reference} (sha256:{digest[:12]})" if digest else ""

    @property
    def may_have_columns(self) -> bool:
        """Whether columns of it may exist: attached, or in the cache. A new container has no cache."""
        is_cached = self.cache is not None and self.cache.folder.exists()
        return is_cached or (self.attached is not None and bool(self.attached.names()))

    def order(self, read_config: ReadConfig | None) -> ReadConfig:
        """The order of a read: ``read_config``, checked, or the default if it is None.

        Raises:
            UsageError: it is not a ReadConfig, or has a seed without a shuffle.
        """
        if read_config is None:
            return self.default_order
        return check_read_config(read_config, is_ordered=keeps_order(self.facts))

    def files(self, splits: Collection[str]) -> Store:
        """The files of ``splits``. Each file is proved when it is opened."""
        if self.proof is None:
            return self.store
        proved = ProvedStore(
            self.store,
            self.proof.promises.within(splits),
            file_format=self.file_format,
            features=self.features,
            records=self.proof.records,
            indexes=self.indexes,
            cache=self.cache,
            hint=self.proof.hint,
        )
        if not self.mirrors:
            return proved
        return MirroredStore(proved, self.mirrors, reference=str(self.facts.reference))

    def with_features(self, features: FeaturesDict) -> ReadableVersion:
        """The same version with the schema ``features``."""
        return replace(self, features=features)

    def within(self, splits: Collection[str]) -> ReadableVersion:
        """The same version with the proof of these splits only, to send less to another process."""
        if self.proof is None:
            return self
        return replace(self, proof=replace(self.proof, promises=self.proof.promises.within(splits)))


def make_readable(
    facts: DatasetVersion,
    store: Store,
    *,
    features: FeaturesDict | None = None,
    default_order: ReadConfig | None = None,
    proof: FileProof | None = None,
    indexes: IndexFolder | None = None,
    cache: FileCache | None = None,
    mirrors: tuple[str, ...] = (),
    attached: AttachedColumns | None = None,
) -> ReadableVersion:
    """The readable version of ``facts`` with its files in ``store``.

    Args:
        facts: the version.
        store: the folder of its shards.
        features: the schema, if it is already decoded; None decodes it from the facts.
        default_order: the order that a pin recorded; None is the order of ``tfds.ReadConfig``, or the stored order if
            the version keeps its records in order.
        proof: what proves the files; None proves nothing.
        indexes: the cache of record places; None caches nothing.
        cache: the cache of files of other machines; None caches nothing.
        mirrors: other folders with the same files.
        attached: the columns that are attached to it.
    """
    return ReadableVersion(
        facts=facts,
        store=store,
        features=features or features_from_json(facts.features_json).with_labels(facts.labels),
        default_order=default_order or check_read_config(None, is_ordered=keeps_order(facts)),
        proof=proof,
        indexes=indexes,
        cache=cache,
        mirrors=mirrors,
        attached=attached,
    )


def readable_folder(
    store: Store, prepared: PreparedDataset, *, slicing: SlicingRule = SlicingRule.DOCUMENTED
) -> ReadableVersion:
    """The readable version of a prepared folder outside any catalog. Its files are not proved."""
    facts = DatasetVersion(
        name=prepared.name,
        config=prepared.config,
        version=prepared.version,
        splits=prepared.splits,
        features_json=features_to_json(prepared.features),
        location=store.url,
        content_digest="",
        file_format=prepared.file_format,
        slicing=slicing,
        disable_shuffling=prepared.disable_shuffling,
        metadata=prepared.metadata,
    )
    return make_readable(facts, store, features=prepared.features)


def keeps_order(facts: DatasetVersion) -> bool:
    """Whether records are read in their stored order by default.

    They are if the version's builder disabled shuffling, or if the software of the file format reads files one
    after the other.
    """
    return facts.disable_shuffling or facts.file_format in SEQUENTIAL_FORMATS
