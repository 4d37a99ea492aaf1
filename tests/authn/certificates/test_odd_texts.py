"""Authorities, lists and OCSP answers with a PrintableString that has other characters, such as `*`, `@` and `_` (A19).

The library refuses them whole; OpenSSL makes and reads them. Signatures are over what was signed, not what is read.
"""

import base64
import contextlib
import subprocess
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.authn.certificates.certificate import Subjects, ignore_warnings, load, read_der
from ams.authn.certificates.crls import RevocationList
from tests.authn.certificates.conftest import BELIEVED, REVOKED, Site
from tests.support.authorities import NO_CA, Authority, Extension, name_of
from tests.support.publishing import Publishing

USUAL, ODD = b"\x0c\x08UNUSUAL!", b"\x13\x08*@_ & x!"
"""A common name, and one of the same length that only OpenSSL can read."""


def pem(label: str, der: bytes) -> bytes:
    lines = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n".encode()


@dataclass(frozen=True)
class OddAuthority:
    made: Authority
    name: bytes = ODD

    @property
    def certificate(self) -> bytes:
        return self.made.signs_bytes(self.made.certificate, USUAL, self.name)

    def signs(self, *extensions: Extension, **options: object) -> bytes:
        signed = self.made.signs("Jane", extensions=[NO_CA, *extensions], **options)  # type: ignore[arg-type]
        return self.made.signs_bytes(signed.certificate, USUAL, self.name)

    def crl(self, *serials: int) -> bytes:
        return self.made.signs_bytes(x509.load_der_x509_crl(self.made.crl(serials)), USUAL, self.name)


@pytest.fixture(scope="module")
def odd_authority() -> OddAuthority:
    return OddAuthority(Authority.make("UNUSUAL!"))


@pytest.mark.parametrize("form", [bytes, lambda der: pem("CERTIFICATE", der)])
async def test_a_ca_signs_and_revokes(site: Site, odd_authority: OddAuthority, form: Callable[[bytes], bytes]) -> None:
    raw = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"x" * 50), False
    leaf = odd_authority.signs(raw, serial=7)
    (site.folder / "odd.pem").write_bytes(form(odd_authority.certificate))
    assert next(site.checks().gauges()).values == [({}, 2)]
    assert "No CRLDistributionPoints" in await site.judge(leaf)

    site.has_list(form(odd_authority.crl()) if form is bytes else pem("X509 CRL", odd_authority.crl()), "odd.r0")
    assert await site.judge(leaf) == BELIEVED
    assert Subjects().of(load(leaf)[0])[1].issuer == "CN=*@_ & x!"
    site.has_list(odd_authority.crl(7), "odd.r0")
    assert await site.judge(leaf) == REVOKED


async def test_a_ca_between_that_a_client_sends_leads_to_the_root(site: Site, publishing: Publishing) -> None:
    below = Authority.make("UNUSUAL!", issuer=site.root, crl_urls=[publishing.puts("/root.crl", site.root.crl())])
    between = OddAuthority(below)
    sent = site.root.signs_bytes(below.certificate, USUAL, ODD)
    leaf = between.signs(crl_urls=[publishing.puts("/odd.crl", between.crl())])

    assert await site.judge(leaf, sent) == BELIEVED
    assert "is not of a CA that is trusted here" in await site.judge(leaf)
    publishing.puts("/root.crl", site.root.crl([below.certificate]))
    assert await site.judge(leaf, sent) == (
        "refused: Your certificate is of a CA whose own has been revoked: CN=*@_ & x!"
    )


@pytest.mark.parametrize("name", [ODD, b"\x14\x08Jos\xe9 Ez!", b"\x16\x08Jos\xe9 Ez!", b"\x14\x08Jos\xc3\xa9 E!"])
async def test_the_name_of_the_authority_above_may_be_odd_in_an_extension_alone(site: Site, name: bytes) -> None:
    """In the key identifier alone, where OpenSSL wrote it by default for years."""
    odd = OddAuthority(Authority.make("UNUSUAL!"), name)
    below = Authority.make("Below", issuer=odd.made)
    above = x509.DirectoryName(name_of("UNUSUAL!"))
    extension = x509.AuthorityKeyIdentifier(b"key", [above], below.certificate.serial_number), False
    jane = below.signs("Jane", extensions=[NO_CA, extension]).certificate
    listed = x509.load_der_x509_crl(below.crl(extensions=[extension]))
    (site.folder / "odd.pem").write_bytes(odd.certificate)
    site.has_list(odd.crl(), "odd.r0")
    site.has_list(below.signs_bytes(listed, USUAL, name), "below.r0")

    sent = odd.made.signs_bytes(below.certificate, USUAL, name)
    assert await site.judge(below.signs_bytes(jane, USUAL, name), sent) == BELIEVED


def test_the_signature_of_a_list_is_over_what_was_signed_and_not_over_what_is_read(odd_authority: OddAuthority) -> None:
    ca, good = read_der(odd_authority.certificate), odd_authority.crl(7)
    assert RevocationList.read(good, "good").is_signed_by(ca)
    for forged in (good.replace(ODD[:2], USUAL[:2]), good[:-1] + bytes([good[-1] ^ 1])):
        assert not RevocationList.read(forged, "forged").is_signed_by(ca)


CA = OddAuthority(Authority.make("UNUSUAL!")).certificate


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, len(CA) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_are_loaded_or_a_value_error(changes: list[tuple[int, int]]) -> None:
    data = bytearray(CA)
    for place, value in changes:
        data[place] = value
    with contextlib.suppress(ValueError), ignore_warnings():
        assert len(load(bytes(data))[1]) in (0, len(CA))


OPENSSL_CONFIGURATION = """
[req]
distinguished_name = name
[name]
[ca]
default_ca = ours
[ours]
database = index.txt
crlnumber = number
default_md = sha256
default_crl_days = 30
crl_extensions = list
[list]
authorityKeyIdentifier = issuer:always
[jane]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
authorityKeyIdentifier = issuer:always
authorityInfoAccess = OCSP;URI:{responder}
[responder]
extendedKeyUsage = OCSPSigning
"""


class OpenSsl:
    def __init__(self, folder: Path, ca: OddAuthority, responder: str) -> None:
        self._folder = folder
        (folder / "config").write_text(OPENSSL_CONFIGURATION.format(responder=responder))
        (folder / "number").write_text("01\n")
        (folder / "ca.pem").write_bytes(pem("CERTIFICATE", ca.certificate))
        (folder / "ca.key").write_bytes(ca.made.key_pem)

    def run_command(self, command: str) -> bytes:
        return subprocess.run(["openssl", *command.split()], capture_output=True, check=True, cwd=self._folder).stdout

    def signs(self, name: str, serial: int) -> bytes:
        self.run_command(f"ecparam -name prime256v1 -genkey -noout -out {name}.key")
        self.run_command(f"req -new -config config -key {name}.key -subj /CN={name} -out {name}.csr")
        self.run_command(
            f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -set_serial {serial} -days 30"
            f" -extfile config -extensions {name} -out {name}.pem"
        )
        return self.run_command(f"x509 -in {name}.pem -outform DER")

    def list_certificate(self, serial: int, state: str) -> None:
        """Note in the list of all certificates that one is good (`V`) or withdrawn (`R`)."""
        withdrawn = "200101000000Z" if state == "R" else ""
        line = f"{state}\t490101000000Z\t{withdrawn}\t{serial:02X}\tunknown\t/CN=jane\n"
        (self._folder / "index.txt").write_text(line)

    def crl(self) -> bytes:
        return self.run_command("ca -config config -gencrl -cert ca.pem -keyfile ca.key")

    def answers(self, signer: str, question: bytes) -> bytes:
        (self._folder / "question").write_bytes(question)
        by = f"-CA ca.pem -rsigner {signer}.pem -rkey {signer}.key"
        self.run_command(f"ocsp -index index.txt {by} -reqin question -respout answer -ndays 1")
        return (self._folder / "answer").read_bytes()


@pytest.mark.openssl
async def test_openssl_may_run_the_ca(site: Site, odd_authority: OddAuthority, publishing: Publishing, tmp_path: Path):
    site.clock.step(int(time.time() * 1000) + 60_000 - site.clock.wall())  # the program signs from now on
    openssl = OpenSsl(tmp_path, odd_authority, publishing.url("/ocsp"))
    jane = openssl.signs("jane", 7)
    openssl.signs("responder", 8)
    (site.folder / "odd.pem").write_bytes(odd_authority.certificate)

    for state, judgement in (("V", BELIEVED), ("R", REVOKED)):
        openssl.list_certificate(7, state)
        site.has_list(openssl.crl(), "odd.r0")
        assert await site.judge(jane) == judgement
        (site.folder / "odd.r0").unlink()
        for signer in ("ca", "responder"):
            publishing.answers("/ocsp", partial(openssl.answers, signer))
            assert await site.judge(jane) == judgement

    assert publishing.asked["/ocsp"] == 4
    publishing.answers("/ocsp", partial(openssl.answers, "jane"))
    assert "Could not access OCSP responder" in await site.judge(jane)
