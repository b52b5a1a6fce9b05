"""From prepared shards to a published version: verify every byte, move into place, then one SQL transaction.

The row is the commit. A crash before it leaves at most a folder that nobody sees; the next run finds that folder,
verifies it like any other and finishes the job.
"""

from registry.publishing.publish import Publication, Target, publish_folder, publish_staged
from registry.publishing.verify import ShardFault, VerifyReport, measure_shards, verify_shards

__all__ = [
    "Publication",
    "ShardFault",
    "Target",
    "VerifyReport",
    "measure_shards",
    "publish_folder",
    "publish_staged",
    "verify_shards",
]
