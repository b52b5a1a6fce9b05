"""Runs work in this process, in its threads, in worker processes, or on a Ray cluster.

An engine takes pieces of work and returns their results in order (``engine``). Builds encode examples with it,
publishing checks shards and computes fingerprints, and pins hash records and files. ``choose_engine`` decides for all
of them which engine runs and how many pieces run at the same time. This package knows nothing about datasets.

Names are loaded on first use, because every call of the API has ``announces`` and most need no engine.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.engines.announcing import announced, announces, current_work
    from registry.engines.choice import choose_engine, has_engine_of_block, num_cpus, use_engine
    from registry.engines.engine import (
        Engine,
        ThisProcess,
        call_ahead,
        call_in_thread,
        closed_engine,
        in_order,
        most_drawn,
        shared_threads,
        submit,
    )
    from registry.engines.messages import (
        REACH_HINT,
        ForeignError,
        NotSendableError,
        Taking,
        WorkerDiedError,
        call_function,
        not_sendable,
    )
    from registry.engines.piece import Piece
    from registry.engines.watching import TELL_SECONDS, Tally, TaskCounts, TaskWatch, watch_tasks
    from registry.engines.workers import WorkerProcesses

__all__ = [
    "REACH_HINT",
    "TELL_SECONDS",
    "Engine",
    "ForeignError",
    "NotSendableError",
    "Piece",
    "Taking",
    "Tally",
    "TaskCounts",
    "TaskWatch",
    "ThisProcess",
    "WorkerDiedError",
    "WorkerProcesses",
    "announced",
    "announces",
    "call_ahead",
    "call_function",
    "call_in_thread",
    "choose_engine",
    "closed_engine",
    "current_work",
    "has_engine_of_block",
    "in_order",
    "most_drawn",
    "not_sendable",
    "num_cpus",
    "shared_threads",
    "submit",
    "use_engine",
    "watch_tasks",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "announcing": "announced announces current_work",
        "choice": "choose_engine has_engine_of_block num_cpus use_engine",
        "engine": "Engine ThisProcess call_ahead call_in_thread closed_engine in_order most_drawn "
        "shared_threads submit",
        "messages": "REACH_HINT ForeignError NotSendableError Taking WorkerDiedError call_function not_sendable",
        "piece": "Piece",
        "watching": "TELL_SECONDS Tally TaskCounts TaskWatch watch_tasks",
        "workers": "WorkerProcesses",
    },
)
