"""The engine of a Ray cluster, found by its entry point in ``registry.engines`` like the engines of other packages.

``tasks`` is the engine, ``connection`` the cluster and its workers as the program sees them, ``worker`` what runs on a
node, and ``settings`` the bounds that a user sets.
"""
