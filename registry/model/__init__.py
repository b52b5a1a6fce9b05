"""The frozen values of the registry: references, versions, splits, dataset versions. No disk, clock or database.

Every other folder speaks in these; they are validated once, when they are made, and print back to what parses.
"""

from registry.model.bounds import VersionBounds, request_bounds
from registry.model.choice import Choice, Considered, Refusal, choose, describe_trouble
from registry.model.dataset_version import (
    DatasetMetadata,
    DatasetVersion,
    SlicingRule,
    VersionState,
    VersionStatus,
    content_digest,
    version_status,
)
from registry.model.effects import Answer, Effect, EffectKind, Use, default_effects, natural_effects, use_effects
from registry.model.event import Event
from registry.model.experiment import Experiment
from registry.model.filenames import DEFAULT_TEMPLATE, ShardedFileTemplate, version_folder
from registry.model.reference import Reference, check_alias, check_config, check_name
from registry.model.shard_lengths import ShardLengths
from registry.model.split import Shard, Split, check_split_name, check_splits
from registry.model.standing import WITHDRAWN, Candidate, Standing
from registry.model.version import Version, VersionClause, VersionRequest

__all__ = [
    "DEFAULT_TEMPLATE",
    "WITHDRAWN",
    "Answer",
    "Candidate",
    "Choice",
    "Considered",
    "DatasetMetadata",
    "DatasetVersion",
    "Effect",
    "EffectKind",
    "Event",
    "Experiment",
    "Reference",
    "Refusal",
    "Shard",
    "ShardLengths",
    "ShardedFileTemplate",
    "SlicingRule",
    "Split",
    "Standing",
    "Use",
    "Version",
    "VersionBounds",
    "VersionClause",
    "VersionRequest",
    "VersionState",
    "VersionStatus",
    "check_alias",
    "check_config",
    "check_name",
    "check_split_name",
    "check_splits",
    "choose",
    "content_digest",
    "default_effects",
    "describe_trouble",
    "natural_effects",
    "request_bounds",
    "use_effects",
    "version_folder",
    "version_status",
]
