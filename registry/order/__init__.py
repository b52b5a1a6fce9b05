"""In which order are the records of a plan read? Pure: seeds, permutations and positions, and no file is opened.

    ReadConfig, shards of a plan --file_order--> files in order --sequence | interleave | permutation--> Order

``ReadConfig`` says what is wanted, ``Order`` knows which record stands at each position and where the runs are. The
interleave and the seeded shuffle of files are those of tf.data, record for record; ``docs/order.md`` states the rules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from registry.model import tfds_id
from registry.order.config import ReadConfig, check_config

if TYPE_CHECKING:
    from registry.order.order import Order, Run
    from registry.order.shuffles import KeyedPermutation, shuffle_permutation

_HOME_OF: Final = {
    "KeyedPermutation": "registry.order.shuffles",
    "Order": "registry.order.order",
    "Run": "registry.order.order",
    "shuffle_permutation": "registry.order.shuffles",
}
"""What needs numpy, loaded when it is first used."""

__all__ = ["KeyedPermutation", "Order", "ReadConfig", "Run", "check_config", "shuffle_permutation", "tfds_id"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'registry.order' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
