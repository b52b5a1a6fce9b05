"""How is work done by several processes at once? Interpreters of our own, each calling one function on chunks of items.

Knows nothing of datasets: the build encodes examples with it, publishing computes fingerprints, pins digest records.
"""

import os

from registry.engines.in_order import call_ahead, call_in_order, call_in_threads, shared_threads, submit
from registry.engines.workers import ForeignError, ItemFailedError, NotSendableError, WorkerPool, call_each

__all__ = [
    "ForeignError",
    "ItemFailedError",
    "NotSendableError",
    "WorkerPool",
    "call_ahead",
    "call_each",
    "call_in_order",
    "call_in_threads",
    "num_cpus",
    "shared_threads",
    "submit",
]


def num_cpus() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
