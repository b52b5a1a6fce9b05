"""Serves pages over HTTP: to the owner of a catalog on this machine (``browse.py``). Only ``app.py`` uses Starlette."""
