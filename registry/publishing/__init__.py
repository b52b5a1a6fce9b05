"""Publishes prepared shards as a version: verifies every byte, proves the number, moves files into place, writes a row.

The row is the commit. A crash before it leaves at most a folder that readers do not see. The next run finds that
folder, verifies it like any other, and writes the row. Names are loaded on first use, because a report of the disk
space does not need numpy.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.publishing.changes import ChangeLevel as ChangeLevel
    from registry.publishing.changes import describe_type as describe_type
    from registry.publishing.copying import copy_version as copy_version
    from registry.publishing.markers import Cleared as Cleared
    from registry.publishing.markers import clear_place as clear_place
    from registry.publishing.numbering import NumberWish as NumberWish
    from registry.publishing.numbering import publish_next as publish_next
    from registry.publishing.outside import ValuesOutside as ValuesOutside
    from registry.publishing.patience import Patience as Patience
    from registry.publishing.proof import Prover as Prover
    from registry.publishing.proof import VersionDiff as VersionDiff
    from registry.publishing.proof import diff_versions as diff_versions
    from registry.publishing.publish import Preview as Preview
    from registry.publishing.publish import Publication as Publication
    from registry.publishing.publish import Target as Target
    from registry.publishing.publish import preview_folder as preview_folder
    from registry.publishing.publish import publish_folder as publish_folder
    from registry.publishing.publish import publish_staged as publish_staged
    from registry.publishing.publish import unchanged as unchanged
    from registry.publishing.record_overlap import RecordOverlap as RecordOverlap
    from registry.publishing.record_overlap import SharedValues as SharedValues
    from registry.publishing.record_overlap import compare_slices as compare_slices
    from registry.publishing.verify import ShardFault as ShardFault
    from registry.publishing.verify import VerifyReport as VerifyReport
    from registry.publishing.verify import verify_shards as verify_shards


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "changes": "ChangeLevel describe_type",
        "copying": "copy_version",
        "markers": "Cleared clear_place",
        "numbering": "NumberWish publish_next",
        "outside": "ValuesOutside",
        "patience": "Patience",
        "proof": "Prover VersionDiff diff_versions",
        "publish": "Preview Publication Target preview_folder publish_folder publish_staged unchanged",
        "record_overlap": "RecordOverlap SharedValues compare_slices",
        "verify": "ShardFault VerifyReport verify_shards",
    },
)
