"""Computes the order in which the records of a plan are read. It is pure: no file is opened.

    ReadConfig, shards of a plan --file_order--> files in order --sequence | interleave | permutation--> Order

``ReadConfig`` holds the options. ``Order`` gives the record at each position, and runs of consecutive records.
Interleave and seeded shuffle of files equal tf.data's, record for record; ``docs/order.md`` states the rules.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports
from registry.model import tfds_id as tfds_id
from registry.order.config import ReadConfig as ReadConfig
from registry.order.config import check_read_config as check_read_config

if TYPE_CHECKING:
    from registry.order.order import Order as Order
    from registry.order.order import Run as Run
    from registry.order.shuffles import KeyedPermutation as KeyedPermutation
    from registry.order.shuffles import philox_words as philox_words
    from registry.order.shuffles import shuffle_permutation as shuffle_permutation


# These need numpy.
__getattr__, __dir__ = lazy_exports(
    __name__, {"order": "Order Run", "shuffles": "KeyedPermutation philox_words shuffle_permutation"}
)
