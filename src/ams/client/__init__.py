"""Speaks to an AMS over HTTP, knowing nothing of how a service does its work.

`wire` says what is asked and how answers read, as pure values; `Client` carries a call over kept connections;
`errors` is what may come back instead of an answer.

    with Client("https://localhost:8080", token, ca="ams-data/ca.pem") as client:
        client.call(wire.publish("demo", "jobs", [wire.message(b"hello")]))
"""

from ams.client.client import Client

__all__ = ["Client"]
