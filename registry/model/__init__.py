"""The frozen values of the registry: references, versions, splits, dataset versions. No disk, clock or database.

Every other folder speaks in these; they are validated once, when they are made, and print back to what parses.
"""

from registry.model.bounds import VersionBounds, request_bounds
from registry.model.choice import Choice, Considered, Refusal, choose, describe_trouble
from registry.model.content import ContentHasher, content_digest
from registry.model.dataset_version import (
    DatasetMetadata,
    DatasetVersion,
    SlicingRule,
    VersionState,
    VersionStatus,
    version_status,
)
from registry.model.effects import Answer, Effect, EffectKind, Use, default_effects, natural_effects, use_effects
from registry.model.event import ACTIONS, Event
from registry.model.experiment import Experiment, ExperimentChange, experiment_name, no_experiment
from registry.model.filenames import DEFAULT_TEMPLATE, ShardedFileTemplate, tfds_id, version_folder
from registry.model.fingerprint import LEAF_EXAMPLES, FeatureFingerprint, SplitFingerprint, block_size
from registry.model.moment import describe_moment, parse_moment
from registry.model.promises import KnownShards, Promises
from registry.model.reference import Reference, check_alias, check_config, check_name, check_new_name, fold_name
from registry.model.shard_lengths import ShardLengths
from registry.model.shard_span import ShardSpan
from registry.model.split import Shard, Split, check_split_name, check_splits
from registry.model.standing import WITHDRAWN, Candidate, Standing
from registry.model.version import Version, VersionClause, VersionRequest, read_code_version

__all__ = [
    "ACTIONS",
    "DEFAULT_TEMPLATE",
    "LEAF_EXAMPLES",
    "WITHDRAWN",
    "Answer",
    "Candidate",
    "Choice",
    "Considered",
    "ContentHasher",
    "DatasetMetadata",
    "DatasetVersion",
    "Effect",
    "EffectKind",
    "Event",
    "Experiment",
    "ExperimentChange",
    "FeatureFingerprint",
    "KnownShards",
    "Promises",
    "Reference",
    "Refusal",
    "Shard",
    "ShardLengths",
    "ShardSpan",
    "ShardedFileTemplate",
    "SlicingRule",
    "Split",
    "SplitFingerprint",
    "Standing",
    "Use",
    "Version",
    "VersionBounds",
    "VersionClause",
    "VersionRequest",
    "VersionState",
    "VersionStatus",
    "block_size",
    "check_alias",
    "check_config",
    "check_name",
    "check_new_name",
    "check_split_name",
    "check_splits",
    "choose",
    "content_digest",
    "default_effects",
    "describe_moment",
    "describe_trouble",
    "experiment_name",
    "fold_name",
    "natural_effects",
    "no_experiment",
    "parse_moment",
    "read_code_version",
    "request_bounds",
    "tfds_id",
    "use_effects",
    "version_folder",
    "version_status",
]
