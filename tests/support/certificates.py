"""Certificates for tests in files: a CA, and its certificates (`authorities` makes them)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from tests.support import authorities


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, with their files."""

    certificate: x509.Certificate
    chain: str
    key: str

    @classmethod
    def write(cls, made: authorities.Credentials, folder: Path, name: str) -> "Pair":
        return cls(made.certificate, *made.write(folder, name))

    @property
    def pem(self) -> bytes:
        return Path(self.chain).read_bytes()

    @property
    def key_pem(self) -> bytes:
        return Path(self.key).read_bytes()


@dataclass(frozen=True)
class Authority:
    """A CA; `folder` has only its certificate and key, like a folder of authorities."""

    made: authorities.Authority
    pair: Pair
    folder: Path
    files: Path

    @classmethod
    def make(cls, files: Path, name: str = "authority") -> "Authority":
        folder = files / f"{name}-authorities"
        folder.mkdir(parents=True)
        made = authorities.Authority.make(name)
        return cls(made, Pair.write(made, folder, name), folder, files)

    def signs(self, name: str, *subject: tuple[str, str], hosts: Sequence[str] = ()) -> Pair:
        """Return a certificate for a subject, in encoded order; by default its common name is `name`."""
        return Pair.write(self.made.signs(subject or name, hosts=hosts), self.files, name)
