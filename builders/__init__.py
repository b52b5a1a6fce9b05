"""Datasets shipped with the registry; plugins like anyone else's, found through their entry points."""
