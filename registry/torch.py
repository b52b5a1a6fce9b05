"""Helpers for torch besides ``Reader.to_torch``: ``collate`` for a DataLoader, and the types of a batch.

    import registry                      # imports no torch; registry.torch does
    loader = DataLoader(dataset, batch_size=32, collate_fn=registry.torch.collate)

Raises:
    MissingExtraError: on import, if torch is not installed (extra ``torch``).
"""

from __future__ import annotations

from registry.errors import require_extra

with require_extra("torch", package="torch", needed_for="registry.torch"):
    from registry.reading.frameworks.torch import ReaderDataset, ReaderIterable
    from registry.reading.frameworks.torch_batches import Collate, Padded, collate

__all__ = ["Collate", "Padded", "ReaderDataset", "ReaderIterable", "collate"]
