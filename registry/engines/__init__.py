"""Runs work in this process, in its threads, in worker processes, or on a Ray cluster.

An engine takes pieces of work and returns their results in order (``engine``). Builds encode examples with it,
publishing checks shards and computes fingerprints, and pins hash records and files. ``choose_engine`` decides for all
of them which engine runs and how many pieces run at the same time. This package knows nothing about datasets.

Names are loaded on first use, because every call of the API has ``announces`` and most need no engine.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.engines.announcing import announced, announces
    from registry.engines.choice import ENGINES, choose_engine, has_engine_of_block, num_cpus, use_engine
    from registry.engines.engine import Engine, ThisProcess, call_ahead, call_in_thread, shared_threads, submit
    from registry.engines.messages import REACH_HINT, ForeignError, NotSendableError, WorkerDiedError
    from registry.engines.piece import Piece
    from registry.engines.watching import TaskCounts, TaskWatch, watch_tasks
    from registry.engines.workers import WorkerProcesses

__all__ = [
    "ENGINES",
    "REACH_HINT",
    "Engine",
    "ForeignError",
    "NotSendableError",
    "Piece",
    "TaskCounts",
    "TaskWatch",
    "ThisProcess",
    "WorkerDiedError",
    "WorkerProcesses",
    "announced",
    "announces",
    "call_ahead",
    "call_in_thread",
    "choose_engine",
    "has_engine_of_block",
    "num_cpus",
    "shared_threads",
    "submit",
    "use_engine",
    "watch_tasks",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "announcing": "announced announces",
        "choice": "ENGINES choose_engine has_engine_of_block num_cpus use_engine",
        "engine": "Engine ThisProcess call_ahead call_in_thread shared_threads submit",
        "messages": "REACH_HINT ForeignError NotSendableError WorkerDiedError",
        "piece": "Piece",
        "watching": "TaskCounts TaskWatch watch_tasks",
        "workers": "WorkerProcesses",
    },
)
