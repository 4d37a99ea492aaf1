"""Subjects: what of one the normal form cannot say (contract 15, A8), and the whole of it as a digest.

The normal form leaves out and mixes up, so that two subjects may have one. Those that could are told here, and
whoever binds such a one binds its digest with it.
"""

import hashlib
from collections import Counter

from cryptography import x509

from ams.core.distinguished_names import of_certificate

_AMBIGUOUS = frozenset(',+"\\<>;')
"""What the normal form escapes elsewhere, but not in `E` and `DC`."""
_UNESCAPED = {"1.2.840.113549.1.9.1": "E", "0.9.2342.19200300.100.1.25": "DC"}
_SINGLE = {"2.5.4.3": "CN", "2.5.4.5": "SERIALNUMBER"}
"""Of several, the normal form keeps the last."""


def unrepresentable(name: x509.Name) -> str | None:
    """Return why the normal form of a subject does not stand for it alone; None: it does."""
    attributes = list(name)
    if not attributes:
        return "it is empty"
    for oid, count in Counter(each.oid.dotted_string for each in attributes).items():
        if oid in _SINGLE and count > 1:
            return f"it has several {_SINGLE[oid]}"
    return next((reason for each in attributes if (reason := _lost(each))), None)


def subject_sha256(name: x509.Name) -> str:
    """Return the SHA-256 of a whole subject (DER), in hexadecimal digits."""
    return hashlib.sha256(name.public_bytes()).hexdigest()


def _lost(attribute: x509.NameAttribute[str | bytes]) -> str:
    """Return what the normal form does not keep of an attribute; empty: nothing."""
    oid, value = attribute.oid.dotted_string, attribute.value
    if not isinstance(value, str) or not of_certificate(x509.Name([attribute])):
        return f"its {attribute.rfc4514_attribute_name} is not in the normal form"
    label = _UNESCAPED.get(oid)
    if label and (_AMBIGUOUS.intersection(value) or value != value.strip() or value.startswith("#")):
        return f"its {label} has characters that are not escaped in the normal form"
    return ""
