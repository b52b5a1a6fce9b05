"""The frozen values of the registry: references, versions, splits, dataset versions.

Every other folder passes these values around. They are validated on creation, and print as text that parses back to the
same value. Nothing here accesses the disk, the clock or a database.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.model.access import AccessToken, RefusedCall, Role, digest_of, new_secret
    from registry.model.attachment import ATTACHMENTS_FOLDER, Attachment
    from registry.model.changes import Answer, Effect, EffectKind, Use, default_effects, natural_effects, use_effects
    from registry.model.dataset_version import (
        WITHDRAWN,
        DatasetMetadata,
        DatasetVersion,
        LocationStep,
        SlicingRule,
        VersionState,
        VersionStatus,
        current_locations,
        is_absolute,
        version_status,
    )
    from registry.model.description import (
        DESCRIBED_FIELDS,
        Description,
        DescriptionArguments,
        described_before,
        spdx_license,
    )
    from registry.model.digests import (
        LEAF_EXAMPLES,
        ContentHasher,
        FeatureFingerprint,
        SplitFingerprint,
        block_size,
        content_digest,
    )
    from registry.model.event import ACTIONS, Event
    from registry.model.experiment import Experiment, ExperimentChange, experiment_name, no_experiment
    from registry.model.generic_names import is_generic, plain_name
    from registry.model.moments import describe_moment, parse_duration, parse_moment
    from registry.model.numbers import counted, listed, listed_below, shown, whole_number
    from registry.model.producer import NameUse, Producer, check_continues, other_source
    from registry.model.progress import (
        Advance,
        Progress,
        ProgressCallback,
        ProgressCounter,
        TaskProgress,
        TaskUnit,
        count_progress,
    )
    from registry.model.reference import (
        Reference,
        check_alias,
        check_config,
        check_name,
        check_new_name,
        covers,
        fold_name,
        is_config,
        nearest_name,
        rename_note,
    )
    from registry.model.split import (
        DEFAULT_TEMPLATE,
        AbstractShardLengths,
        KnownShards,
        Promises,
        Shard,
        ShardedFileTemplate,
        ShardLengths,
        ShardSpan,
        Split,
        UntaggedShards,
        check_split_name,
        check_splits,
        shards_by_filename,
        tfds_id,
        version_folder,
    )
    from registry.model.standing import (
        Candidate,
        Choice,
        Considered,
        Refusal,
        Standing,
        choose,
        describe_trouble,
    )
    from registry.model.version import (
        Version,
        VersionBounds,
        VersionClause,
        VersionRequest,
        read_code_version,
        request_bounds,
    )
    from registry.model.webhook import Webhook, sign_message, webhook_secret

__all__ = [
    "ACTIONS", "ATTACHMENTS_FOLDER", "DEFAULT_TEMPLATE", "DESCRIBED_FIELDS", "LEAF_EXAMPLES", "WITHDRAWN",
    "AbstractShardLengths", "AccessToken", "Advance", "Answer", "Attachment", "Candidate", "Choice", "Considered",
    "ContentHasher", "DatasetMetadata", "DatasetVersion", "Description", "DescriptionArguments", "Effect", "EffectKind",
    "Event", "Experiment", "ExperimentChange", "FeatureFingerprint", "KnownShards", "LocationStep", "NameUse",
    "Producer", "Progress", "ProgressCallback", "ProgressCounter", "Promises", "Reference", "Refusal", "RefusedCall",
    "Role", "Shard", "ShardLengths", "ShardSpan", "ShardedFileTemplate", "SlicingRule", "Split", "SplitFingerprint",
    "Standing", "TaskProgress", "TaskUnit", "UntaggedShards", "Use", "Version", "VersionBounds", "VersionClause",
    "VersionRequest", "VersionState", "VersionStatus", "Webhook", "block_size", "check_alias", "check_config",
    "check_continues", "check_name", "check_new_name", "check_split_name", "check_splits", "choose", "content_digest",
    "count_progress", "counted", "covers", "current_locations", "default_effects", "describe_moment",
    "describe_trouble", "described_before", "digest_of", "experiment_name", "fold_name", "is_absolute", "is_config",
    "is_generic", "listed", "listed_below", "natural_effects", "nearest_name", "new_secret", "no_experiment",
    "other_source", "parse_duration", "parse_moment", "plain_name", "read_code_version", "rename_note",
    "request_bounds", "shards_by_filename", "shown", "sign_message", "spdx_license", "tfds_id", "use_effects",
    "version_folder", "version_status", "webhook_secret", "whole_number",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "access": "AccessToken RefusedCall Role digest_of new_secret",
        "attachment": "ATTACHMENTS_FOLDER Attachment",
        "changes": "Answer Effect EffectKind Use default_effects natural_effects use_effects",
        "dataset_version": "WITHDRAWN DatasetMetadata DatasetVersion LocationStep SlicingRule VersionState "
        "VersionStatus current_locations is_absolute version_status",
        "description": "DESCRIBED_FIELDS Description DescriptionArguments described_before spdx_license",
        "digests": "LEAF_EXAMPLES ContentHasher FeatureFingerprint SplitFingerprint block_size content_digest",
        "event": "ACTIONS Event",
        "experiment": "Experiment ExperimentChange experiment_name no_experiment",
        "generic_names": "is_generic plain_name",
        "moments": "describe_moment parse_duration parse_moment",
        "numbers": "counted listed listed_below shown whole_number",
        "producer": "NameUse Producer check_continues other_source",
        "progress": "Advance Progress ProgressCallback ProgressCounter TaskProgress TaskUnit count_progress",
        "reference": "Reference check_alias check_config check_name check_new_name covers fold_name is_config "
        "nearest_name rename_note",
        "split": "DEFAULT_TEMPLATE AbstractShardLengths KnownShards Promises Shard ShardedFileTemplate ShardLengths "
        "ShardSpan Split UntaggedShards check_split_name check_splits shards_by_filename tfds_id "
        "version_folder",
        "standing": "Candidate Choice Considered Refusal Standing choose describe_trouble",
        "version": "Version VersionBounds VersionClause VersionRequest read_code_version request_bounds",
        "webhook": "Webhook sign_message webhook_secret",
    },
)
