"""Computes the order in which the records of a plan are read. It is pure: no file is opened.

    ReadConfig, shards of a plan --file_order--> files in order --sequence | interleave | permutation--> Order

``ReadConfig`` holds the options. ``Order`` gives the record at each position, and runs of consecutive records.
Interleave and seeded shuffle of files equal tf.data's, record for record; ``docs/order.md`` states the rules.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports
from registry.model import tfds_id
from registry.order.config import ReadConfig, check_read_config

if TYPE_CHECKING:
    from registry.order.order import Order, Run
    from registry.order.shuffles import KeyedPermutation, philox_words, shuffle_permutation

__all__ = [
    "KeyedPermutation",
    "Order",
    "ReadConfig",
    "Run",
    "check_read_config",
    "philox_words",
    "shuffle_permutation",
    "tfds_id",
]

# These need numpy.
__getattr__, __dir__ = lazy_exports(
    __name__, {"order": "Order Run", "shuffles": "KeyedPermutation philox_words shuffle_permutation"}
)
