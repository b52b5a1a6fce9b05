"""Where work runs: in this process, in its threads, or in worker processes. A cluster is one more ``Engine``.

An engine takes pieces of work and returns their results in order (``engine``). The build encodes examples with it,
publishing walks shards and computes fingerprints, pins hash records and files. ``choose_engine`` decides for all of
them which engine runs and how many pieces at the same time. Nothing here knows of datasets.
"""

from registry.engines.choice import choose_engine, num_cpus
from registry.engines.engine import Engine, FileRange, Piece, ThisProcess, call_ahead, shared_threads, submit
from registry.engines.workers import ForeignError, NotSendableError, WorkerDiedError, WorkerProcesses

__all__ = [
    "Engine",
    "FileRange",
    "ForeignError",
    "NotSendableError",
    "Piece",
    "ThisProcess",
    "WorkerDiedError",
    "WorkerProcesses",
    "call_ahead",
    "choose_engine",
    "num_cpus",
    "shared_threads",
    "submit",
]
