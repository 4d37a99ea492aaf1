"""Shared by the receivers in Python: their paths, the hash they show, and a file for each delivery."""

import itertools
import os
import ssl
from collections.abc import Iterable
from pathlib import Path

PORT = int(os.environ["PORT"])
CERTIFICATE, KEY = os.environ.get("CERTIFICATE", ""), os.environ.get("KEY", "")
FOLDER = Path(os.environ["FOLDER"])
REASON = "no such bed"
_numbers = itertools.count()


def tls() -> ssl.SSLContext | None:
    """Return the TLS context; None without a certificate, behind a proxy."""
    if not CERTIFICATE:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    return context


def read_hash() -> str:
    """Return the verification hash of the endpoint."""
    return (FOLDER / "hash").read_text()


def keep(path: str, port: object, headers: Iterable[tuple[str, str]], body: str) -> None:
    """Write a delivery to a file, with the other side's port."""
    lines = [path, str(port), *(f"{name}: {value}" for name, value in headers)]
    written = FOLDER / "writing"
    written.write_text("\n".join([*lines, "", body]))
    written.rename(FOLDER / f"{next(_numbers):06}.delivery")
