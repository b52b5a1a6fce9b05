r"""A version that can be read: its facts, where its files are, how they are decoded, and its default order.

    a version of a catalog, now or at a moment  \
    a pin                                        >  ReadableVersion  --Reader(readable, plan)-->  examples
    a prepared folder                           /

``make_readable`` is the only place that makes one for a published version, and ``readable_folder`` for a folder that
nobody published. Everything above (reading, pinning, verifying, exporting) takes the value and does not ask where it
came from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from registry.features import FeaturesDict, features_from_json
from registry.features.schema import features_to_json
from registry.model import DatasetVersion, Promises, SlicingRule
from registry.order import ReadConfig, check_read_config
from registry.prepared import PreparedDataset
from registry.shards import SEQUENTIAL_FORMATS, ProvedStore, RecordsProof
from registry.storage import Store
from registry.tfrecord import IndexFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProof:
    """What every file of a version has to be before its first byte is used: see ``registry.shards.ProvedStore``.

    Attributes:
        promises: the size, number of records and sha256 of each file.
        hint: what to do about a file that is another one.
        records: the records that a file may hold instead of being the promised one; None accepts no other file.
    """

    promises: Promises
    hint: str
    records: RecordsProof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableVersion:
    """Everything that is needed to read a version, wherever it was found.

    Attributes:
        facts: name, number, splits, slicing rule and file format.
        store: the folder that holds the shards, as they are; ``files`` gives them proved.
        features: the schema of an example.
        default_order: the order of a read that asks for none.
        proof: what proves the files; None where nobody promised anything, as of a folder that was never published.
        indexes: where the places of records and the stamps of proved files are kept; None keeps nothing.
    """

    facts: DatasetVersion
    store: Store
    features: FeaturesDict
    default_order: ReadConfig
    proof: FileProof | None = None
    indexes: IndexFolder | None = None

    @property
    def file_format(self) -> str:
        """What the files are, see ``registry.shards``."""
        return self.facts.file_format

    @property
    def identity(self) -> str:
        """The exact version and its content, which a saved state is compared with; ``""`` where nothing is published.

        Found in a catalog or in a pin, one version has one identity.
        """
        digest = self.facts.content_digest
        return f"{self.facts.reference} (sha256:{digest[:12]})" if digest else ""

    def order(self, config: ReadConfig | None) -> ReadConfig:
        """The order of a read: ``config``, checked; or the default one where it is None.

        Raises:
            UsageError: it is not a ReadConfig, or has a seed without a shuffle.
        """
        return self.default_order if config is None else check_read_config(config, is_ordered=keeps_order(self.facts))

    def files(self, splits: Collection[str]) -> Store:
        """The files of ``splits``, each of which is proved when it is opened."""
        if self.proof is None:
            return self.store
        return ProvedStore(
            self.store,
            self.proof.promises.within(splits),
            file_format=self.file_format,
            features=self.features,
            records=self.proof.records,
            indexes=self.indexes,
            hint=self.proof.hint,
        )

    def with_features(self, features: FeaturesDict) -> ReadableVersion:
        """The same version, whose examples are decoded by ``features``."""
        return replace(self, features=features)

    def within(self, splits: Collection[str]) -> ReadableVersion:
        """The same version with the proof of these splits only: what travels to another process to read them."""
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
) -> ReadableVersion:
    """The readable version of ``facts``, whose files are in ``store``.

    Args:
        facts: the version.
        store: the folder that holds its shards.
        features: the schema where it was decoded already; None decodes it from the facts.
        default_order: the order that a pin recorded; None is that of ``tfds.ReadConfig``, or the stored order of a
            version that keeps one.
        proof: what every file has to be.
        indexes: where the places of records are kept.
    """
    return ReadableVersion(
        facts=facts,
        store=store,
        features=features or features_from_json(facts.features_json).with_labels(facts.labels),
        default_order=default_order or check_read_config(None, is_ordered=keeps_order(facts)),
        proof=proof,
        indexes=indexes,
    )


def readable_folder(
    store: Store, prepared: PreparedDataset, *, slicing: SlicingRule = SlicingRule.DOCUMENTED
) -> ReadableVersion:
    """The readable version of a prepared folder that is in no catalog: nothing proves its files."""
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
    """Whether the records are read in their stored order unless a config asks for another one.

    They are where the version's builder disabled shuffling, and where the file format is not interleaved by the
    software that writes it.
    """
    return facts.disable_shuffling or facts.file_format in SEQUENTIAL_FORMATS
