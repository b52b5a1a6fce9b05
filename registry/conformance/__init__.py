"""Checks that a service keeps the catalog protocol over HTTP, for those who run one or write one.

    pytest --pyargs registry.conformance --url https://catalog.example/

It needs the extra ``conformance``. Nothing else imports this folder. The service is a black box: it is asked over plain
HTTP and through the client. A check that fails says what was asked, what is required and where that is written.
``plugin.py`` has the options, ``peer.py`` asks, and ``conftest.py`` makes the tokens and datasets of a run.
"""
