"""Publishes prepared shards as a version: verifies every byte, proves the number, moves files into place, writes a row.

The row is the commit. A crash before it leaves at most a folder that readers do not see. The next run finds that
folder, verifies it like any other, and writes the row. Names are loaded on first use, because a report of the disk
space does not need numpy.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.publishing.changes import ChangeLevel, describe_type
    from registry.publishing.copying import copy_version
    from registry.publishing.markers import Cleared, clear_place
    from registry.publishing.numbering import (
        NumberWish,
        preview_next,
        publish_next,
        publish_next_in_place,
    )
    from registry.publishing.outside import ValuesOutside
    from registry.publishing.patience import Patience
    from registry.publishing.proof import Prover, VersionDiff, diff_versions
    from registry.publishing.publish import (
        Preview,
        Publication,
        Target,
        preview_folder,
        publish_folder,
        publish_staged,
        unchanged,
    )
    from registry.publishing.record_overlap import RecordOverlap, SharedValues, compare_slices
    from registry.publishing.verify import ShardFault, VerifyReport, verify_shards

__all__ = [
    "ChangeLevel",
    "Cleared",
    "NumberWish",
    "Patience",
    "Preview",
    "Prover",
    "Publication",
    "RecordOverlap",
    "ShardFault",
    "SharedValues",
    "Target",
    "ValuesOutside",
    "VerifyReport",
    "VersionDiff",
    "clear_place",
    "compare_slices",
    "copy_version",
    "describe_type",
    "diff_versions",
    "preview_folder",
    "preview_next",
    "publish_folder",
    "publish_next",
    "publish_next_in_place",
    "publish_staged",
    "unchanged",
    "verify_shards",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "changes": "ChangeLevel describe_type",
        "copying": "copy_version",
        "markers": "Cleared clear_place",
        "numbering": "NumberWish preview_next publish_next publish_next_in_place",
        "outside": "ValuesOutside",
        "patience": "Patience",
        "proof": "Prover VersionDiff diff_versions",
        "publish": "Preview Publication Target preview_folder publish_folder publish_staged unchanged",
        "record_overlap": "RecordOverlap SharedValues compare_slices",
        "verify": "ShardFault VerifyReport verify_shards",
    },
)
