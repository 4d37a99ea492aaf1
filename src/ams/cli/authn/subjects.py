"""Distinguished names as people give them, on a command line or in a file, and certificates that hold them."""

from cryptography import x509

from ams.cli.exits import Usage
from ams.core.distinguished_names import normalised, of_certificate


def subject_of(text: str) -> str:
    """Return the normal form of a name in any spelling; raise `Usage` for what is none."""
    try:
        return normalised(text)
    except ValueError as error:
        raise Usage(f"{text[:80]!r}: {error}") from None


def names_in(path: str) -> tuple[str, str]:
    """Return subject and issuer of the first certificate of a file, PEM or DER; raise `Usage` when there is none."""
    try:
        with open(path, "rb") as file:
            content = file.read(1 << 20)
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}") from error
    try:
        pem = b"-----BEGIN" in content
        found = x509.load_pem_x509_certificate(content) if pem else x509.load_der_x509_certificate(content)
        return of_certificate(found.subject), of_certificate(found.issuer)
    except ValueError:
        raise Usage(f"{path} holds no certificate that can be read") from None
