"""The engine of a Ray cluster, found by its entry point in ``registry.engines`` like the engines of other packages.

``tasks`` is the engine, ``connection`` the program's side of the cluster, ``worker`` the code that runs on a node, and
``settings`` the limits that a user sets.
"""
