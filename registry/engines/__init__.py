"""Runs work in this process, in its threads, in worker processes, or on a Ray cluster.

An engine takes pieces of work and returns their results in order (``engine``). Builds encode examples with it,
publishing checks shards and computes fingerprints, and pins hash records and files. ``choose_engine`` decides for all
of them which engine runs and how many pieces run at the same time. This package knows nothing about datasets.

Names are loaded on first use, because every call of the API has ``announces`` and most need no engine.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.engines.announcing import announced as announced
    from registry.engines.announcing import announces as announces
    from registry.engines.announcing import current_work as current_work
    from registry.engines.choice import choose_engine as choose_engine
    from registry.engines.choice import has_engine_of_block as has_engine_of_block
    from registry.engines.choice import num_cpus as num_cpus
    from registry.engines.choice import use_engine as use_engine
    from registry.engines.engine import Engine as Engine
    from registry.engines.engine import ThisProcess as ThisProcess
    from registry.engines.engine import call_ahead as call_ahead
    from registry.engines.engine import call_in_thread as call_in_thread
    from registry.engines.engine import closed_engine as closed_engine
    from registry.engines.engine import in_order as in_order
    from registry.engines.engine import most_drawn as most_drawn
    from registry.engines.engine import shared_threads as shared_threads
    from registry.engines.engine import submit as submit
    from registry.engines.messages import REACH_HINT as REACH_HINT
    from registry.engines.messages import ForeignError as ForeignError
    from registry.engines.messages import NotSendableError as NotSendableError
    from registry.engines.messages import Taking as Taking
    from registry.engines.messages import WorkerDiedError as WorkerDiedError
    from registry.engines.messages import call_function as call_function
    from registry.engines.messages import not_sendable as not_sendable
    from registry.engines.pieces import TELL_SECONDS as TELL_SECONDS
    from registry.engines.pieces import Piece as Piece
    from registry.engines.pieces import Tally as Tally
    from registry.engines.pieces import TaskCounts as TaskCounts
    from registry.engines.pieces import TaskWatch as TaskWatch
    from registry.engines.pieces import watch_tasks as watch_tasks
    from registry.engines.workers import WorkerProcesses as WorkerProcesses


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "announcing": "announced announces current_work",
        "choice": "choose_engine has_engine_of_block num_cpus use_engine",
        "engine": "Engine ThisProcess call_ahead call_in_thread closed_engine in_order most_drawn "
        "shared_threads submit",
        "messages": "REACH_HINT ForeignError NotSendableError Taking WorkerDiedError call_function not_sendable",
        "pieces": "TELL_SECONDS Piece Tally TaskCounts TaskWatch watch_tasks",
        "workers": "WorkerProcesses",
    },
)
