"""Reading certificates: a client makes its own as it likes, so whatever is read may not be there, or not be sensible.

A library reads fields when they are asked for, so that an odd one is met anywhere. Here they are read at one place,
all of them, and what cannot be read is one refusal (contract 15, A19).
"""

import contextlib
import datetime
import re
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from cryptography import x509

from ams.authn.certificates.names import issuer_of, subject_of
from ams.authn.values import UNREADABLE
from ams.core.clock import Milliseconds
from ams.core.errors import CertificateRefused

Kind = TypeVar("Kind", bound=x509.ExtensionType)

_UNWRITABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_WARNINGS = threading.Lock()

RefusalKind = Literal[
    "unreadable", "expired", "not_yet_valid", "proxy", "chain", "usage", "host",
    "revoked", "unknown", "no_list", "doubt",
]  # fmt: skip
"""How refusals are counted; the last is that of a certificate of which it is not known whether it was withdrawn."""
KINDS: tuple[RefusalKind, ...] = get_args(RefusalKind)


class Refusal(CertificateRefused):
    """A certificate that is not believed; `kind` is one of `KINDS`."""

    def __init__(self, kind: RefusalKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Facts:
    """A certificate whose fields were read."""

    certificate: x509.Certificate
    subject: x509.Name
    issuer: x509.Name
    serial: int
    not_before: Milliseconds
    not_after: Milliseconds
    extensions: x509.Extensions

    def extension(self, kind: type[Kind]) -> Kind | None:
        """Return an extension's value, or None."""
        found = next((each.value for each in self.extensions if isinstance(each.value, kind)), None)
        return found if isinstance(found, kind) else None

    @property
    def is_ca(self) -> bool:
        """Whether it says that it is a CA's."""
        basic = self.extension(x509.BasicConstraints)
        return basic is not None and basic.ca


def read(certificate: x509.Certificate) -> Facts:
    """Read a certificate; raise `Refusal` when something in it cannot be read."""
    with quietly():
        try:
            facts = Facts(
                certificate,
                subject_of(certificate),
                issuer_of(certificate),
                certificate.serial_number,
                milliseconds(certificate.not_valid_before_utc),
                milliseconds(certificate.not_valid_after_utc),
                certificate.extensions,
            )
        except Exception as error:  # parsers raise many kinds, depending on what the client sends
            raise Refusal("unreadable", UNREADABLE) from error
    return facts


def read_leaf(certificate: x509.Certificate) -> Facts:
    """Read a client's certificate; raise `Refusal` when it cannot be read, or its subject cannot be written down."""
    facts = read(certificate)
    if not all(_is_text(each.value) for each in facts.subject):
        raise Refusal("unreadable", "Your certificate has a subject that cannot be read")
    return facts


def milliseconds(moment: datetime.datetime) -> Milliseconds:
    """Return a moment of a certificate or a list."""
    return Milliseconds(int(moment.timestamp()) * 1000)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Read without the library's warnings about unusual values: an operator could not act on them."""
    with _WARNINGS, warnings.catch_warnings(action="ignore"):
        yield


def _is_text(value: object) -> bool:
    """Whether a value can be written down: control characters are no part of a name, and databases take no NUL."""
    return isinstance(value, str) and _UNWRITABLE.search(value) is None
