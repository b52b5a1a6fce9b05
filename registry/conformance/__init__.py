"""Checks that a service implements the catalog protocol over HTTP, for operators and authors of services.

    pytest --pyargs registry.conformance --url https://catalog.example/

It needs the extra ``conformance``. No other code imports this folder. The service is a black box: requests are sent
over plain HTTP and through the client. A failing check names the request, the requirement and its source. ``plugin.py``
has the options, ``peer.py`` sends requests, and ``conftest.py`` creates the tokens and datasets of a run.
"""
