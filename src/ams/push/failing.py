"""Why an endpoint could not be asked, in words for whoever configured it: short, on one line."""

import ssl
from dataclasses import dataclass

import httpcore

MAX_TEXT = 300
"""Characters of a reason."""
_TLS = {
    "WRONG_VERSION_NUMBER": "the endpoint does not speak TLS on this port",
    "UNSUPPORTED_PROTOCOL": "the endpoint has no TLS 1.2 or newer",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the endpoint has no TLS 1.2 or newer",
    "UNEXPECTED_EOF_WHILE_READING": "the endpoint closed the connection",
}


class Unreachable(Exception):
    """There is no connection, or it broke; the text says why."""


@dataclass(slots=True)
class Progress:
    """How far an attempt has come, for whoever has to say where it ended."""

    step: str = "waiting for others to be done"
    """What it is doing, in words that follow `while`."""


def of_socket(error: OSError) -> str:
    """Return what happened to a connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "failed"
        return f"TLS: {_TLS.get(reason) or reason.lower().replace('_', ' ')}"
    if isinstance(error, ConnectionRefusedError):
        return "The connection was refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "The connection was reset"
    if isinstance(error, ConnectionAbortedError):
        return "The connection was closed"
    return error.strerror or str(error) or type(error).__name__


def of_http(error: httpcore.ProtocolError | httpcore.NetworkError, *, heard: bool) -> str:
    """Return why there was no answer, or no whole one; `heard` whether anything of it came."""
    said = one_line(str(error))
    if isinstance(error, httpcore.LocalProtocolError):
        return f"The request cannot be sent: {said}"
    if isinstance(error, httpcore.NetworkError):
        return said
    if "without sending" in said:  # a response, or a complete message body
        return f"The connection was closed {'before the answer was whole' if heard else 'without an answer'}"
    if "_SWITCH_" in said:
        return "The endpoint wants to speak another protocol"
    return f"The answer is not HTTP/1.1: {said}"[:MAX_TEXT]


def one_line(text: str, most: int = MAX_TEXT) -> str:
    """Return a text without line breaks and what cannot be shown, at most so many characters."""
    return "".join(each for each in " ".join(text.split()) if each.isprintable())[:most]
