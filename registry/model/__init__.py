"""The frozen values of the registry: references, versions, splits, dataset versions. No disk, clock or database.

Every other folder speaks in these; they are validated once, when they are made, and print back to what parses.
"""

from registry.model.dataset_version import (
    DatasetMetadata,
    DatasetVersion,
    SlicingRule,
    VersionState,
    VersionStatus,
    content_digest,
    version_status,
)
from registry.model.experiment import Experiment, ExperimentChange, experiment_name, no_experiment
from registry.model.filenames import DEFAULT_TEMPLATE, ShardedFileTemplate, version_folder
from registry.model.reference import Reference, check_alias, check_config, check_name, check_new_name, fold_name
from registry.model.shard_lengths import ShardLengths
from registry.model.split import Shard, Split, check_split_name, check_splits
from registry.model.version import Version, VersionClause, VersionRequest, read_code_version

__all__ = [
    "DEFAULT_TEMPLATE",
    "DatasetMetadata",
    "DatasetVersion",
    "Experiment",
    "ExperimentChange",
    "Reference",
    "Shard",
    "ShardLengths",
    "ShardedFileTemplate",
    "SlicingRule",
    "Split",
    "Version",
    "VersionClause",
    "VersionRequest",
    "VersionState",
    "VersionStatus",
    "check_alias",
    "check_config",
    "check_name",
    "check_new_name",
    "check_split_name",
    "check_splits",
    "content_digest",
    "experiment_name",
    "fold_name",
    "no_experiment",
    "read_code_version",
    "version_folder",
    "version_status",
]
