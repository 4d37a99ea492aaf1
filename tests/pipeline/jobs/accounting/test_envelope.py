import base64
import contextlib
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken, WrongOption
from ams.pipeline.jobs.accounting.envelope import Opened, Trust, opened
from ams.pipeline.jobs.accounting.reader import Reader
from ams.pipeline.jobs.accounting.signatures import slash_form
from tests.pipeline.jobs.accounting.texts import INDIVIDUAL, JOB, NOW, text

pytestmark = pytest.mark.openssl

SITE = "/DC=org/DC=example/O=Site-A/CN=ce01.site-a.example"
TEXT = text(INDIVIDUAL, JOB).encode()
ANYONE = Trust()


class Senders:
    """Keys and certificates, and OpenSSL as the senders of records use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.other_ca = self.authority("ca"), self.authority("other")
        self.site = self.certificate("site", SITE, "rsa:2048")
        self.curved = self.certificate(
            "curved", "/DC=org/DC=example/CN=curved", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"
        )
        self.all = Trust(ca=self.ca, key=self.key("site"), certificate=self.site)

    def authority(self, name: str) -> str:
        subject, key = f"/DC=org/DC=example/CN={name}", self.key(name)
        openssl(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "30",
            "-subj",
            subject,
            "-keyout",
            key,
            "-out",
            self.path(name),
        )
        return self.path(name)

    def certificate(self, name: str, subject: str, *kind: str) -> str:
        request, extensions = self.path(f"{name}-request"), self.folder / "extensions"
        extensions.write_text("keyUsage=digitalSignature,keyEncipherment\n")
        openssl("req", "-newkey", *kind, "-nodes", "-subj", subject, "-keyout", self.key(name), "-out", request)
        signed = ["-CA", self.ca, "-CAkey", self.key("ca"), "-CAcreateserial", "-extfile", str(extensions)]
        openssl("x509", "-req", "-in", request, *signed, "-days", "20", "-out", self.path(name))
        return self.path(name)

    def sign(self, data: bytes, who: str = "site", *options: str) -> bytes:
        return openssl("smime", "-sign", "-signer", self.path(who), "-inkey", self.key(who), *options, given=data)

    def encrypt(self, data: bytes, *options: str) -> bytes:
        return openssl("smime", "-encrypt", *options, self.site, given=data)

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}.pem")

    def key(self, name: str) -> str:
        return str(self.folder / f"{name}.key")


def openssl(*arguments: str, given: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=given, capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def senders(tmp_path_factory: pytest.TempPathFactory) -> Senders:
    return Senders(tmp_path_factory.mktemp("senders"))


def lines(data: bytes) -> list[bytes]:
    return data.strip().splitlines()


def refused(data: bytes, trust: Trust = ANYONE) -> str:
    with pytest.raises(Broken) as failed:
        opened(data, trust)
    return str(failed.value)


def test_a_text_without_an_envelope_has_no_signer() -> None:
    assert opened(TEXT, ANYONE) == Opened(TEXT, "")


@pytest.mark.parametrize("who", ["site", "curved"])
def test_a_signed_text_is_opened_and_its_signer_told(senders: Senders, who: str) -> None:
    text, signer = opened(senders.sign(TEXT, who, "-text"), senders.all)

    assert lines(text) == lines(TEXT)
    assert signer == (SITE if who == "site" else "/DC=org/DC=example/CN=curved")


@pytest.mark.parametrize("options", [(), ("-md", "sha512"), ("-nosmimecap",), ("-crlfeol",)])
def test_signatures_of_all_usual_kinds_hold(senders: Senders, options: tuple[str, ...]) -> None:
    assert lines(opened(senders.sign(TEXT, "site", "-text", *options), senders.all).text) == lines(TEXT)


def test_line_ends_that_transport_changed_do_not_break_a_signature(senders: Senders) -> None:
    signed = senders.sign(TEXT, "site", "-text").replace(b"\r\n", b"\n")

    assert opened(signed.replace(b"\n", b"\r\n"), senders.all).signer == SITE
    assert opened(b"\n" + signed, senders.all).signer == SITE


def test_a_text_changed_after_signing_is_refused(senders: Senders) -> None:
    signed = senders.sign(TEXT, "site", "-text").replace(b"WallDuration: 3600", b"WallDuration: 9600")

    assert refused(signed) == "signature: the text was changed after it was signed"


def test_a_signature_of_another_key_is_refused(senders: Senders) -> None:
    certificate = x509.load_pem_x509_certificate(Path(senders.site).read_bytes())
    mine = opened(senders.sign(TEXT, "site", "-text"), ANYONE).text
    # Signed by the authority's key, but said to be by the site.
    forged = openssl(
        *("cms", "-sign", "-signer", senders.path("ca"), "-inkey", senders.key("ca"), "-text", "-nocerts"),
        *("-certfile", senders.site),
        given=TEXT,
    )

    assert slash_form(certificate.subject) == SITE
    assert lines(mine) == lines(TEXT)
    assert refused(forged) == "signature: the signer's certificate is not inside"


def test_a_damaged_signature_is_refused(senders: Senders) -> None:
    signed = senders.sign(TEXT, "site", "-text")
    last_of_signature = signed.rstrip().rsplit(b"\n\n", 1)[0][-12:]

    assert refused(signed.replace(last_of_signature, b"AAAAAAAA" + last_of_signature[-4:])).startswith("signature: ")


def test_a_hash_that_can_be_forged_is_refused(senders: Senders) -> None:
    assert "not SHA-2" in refused(senders.sign(TEXT, "site", "-text", "-md", "sha1"))


def test_a_certificate_of_an_authority_we_do_not_know_is_refused(senders: Senders) -> None:
    signed = senders.sign(TEXT, "site", "-text")

    assert refused(signed, Trust(ca=senders.other_ca)) == "signature: its certificate is of no authority we know"
    assert opened(signed, Trust(ca=str(senders.folder))).signer == SITE


def test_a_certificate_that_had_expired_is_refused(senders: Senders) -> None:
    old = senders.folder / "old.pem"
    key = senders.key("site")
    openssl(
        *("x509", "-in", senders.site, "-signkey", key, "-days", "-1", "-out", str(old)),
    )
    (senders.folder / "old.key").write_bytes(Path(key).read_bytes())

    assert refused(senders.sign(TEXT, "old", "-text")) == "signature: made when its certificate was not valid"
    old.unlink()


def test_an_encrypted_text_is_opened_with_its_key_and_set_aside_without(senders: Senders) -> None:
    encrypted = senders.encrypt(senders.sign(TEXT, "site", "-text"), "-aes128")

    assert opened(encrypted, senders.all).signer == SITE
    assert refused(encrypted) == "encrypted"
    wrong = Trust(key=senders.key("ca"), certificate=senders.ca)
    assert refused(encrypted, wrong).startswith("encrypted: not for the key given")


def test_what_the_library_signs_is_opened_too(senders: Senders) -> None:
    certificate = x509.load_pem_x509_certificate(Path(senders.site).read_bytes())
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(Path(senders.key("site")).read_bytes(), None)
    options = [pkcs7.PKCS7Options.DetachedSignature, pkcs7.PKCS7Options.Text]
    builder = pkcs7.PKCS7SignatureBuilder().set_data(TEXT)
    signed = builder.add_signer(certificate, key, hashes.SHA256()).sign(Encoding.SMIME, options)  # type: ignore[arg-type]  # it is RSA

    assert opened(signed, senders.all).signer == SITE


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (b"MIME-Version: 1.0\n", "ends in its headers"),
        (b"Content-Type: image/png\n\n", "content type"),
        (b"Content-Type: multipart/signed\n\nx", "one text and one signature"),
        (b"Content-Type: multipart/signed; boundary=b\n\n--b\nx\n--b--\n", "one text and one signature"),
        (b"Content-Type: multipart/signed; boundary=b\n\n--b\n\nx\n--b\n\nx\n--b--\n", "signature: cannot be read"),
        (b"Content-Type: text/plain\nContent-Transfer-Encoding: x\n\nx", "its encoding"),
        (b"Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\nx", "is not base64"),
        (b"Content-Type: application/pkcs7-mime; smime-type=signed-data\n\nx", "not as a part beside"),
    ],
)
def test_envelopes_that_cannot_be_opened_say_why(headers: bytes, reason: str) -> None:
    assert reason in refused(headers)


def test_a_text_in_mime_without_signature_is_read(senders: Senders) -> None:
    assert opened(b"MIME-Version: 1.0\nContent-Type: text/plain\n\n" + TEXT, ANYONE) == Opened(TEXT, "")


@given(st.binary(max_size=300))
def test_whatever_an_envelope_holds_it_is_opened_or_refused(rest: bytes) -> None:
    for start in (b"MIME-Version: 1.0\n", b"Content-Type: multipart/signed; boundary=b\n\n--b\n\n"):
        with contextlib.suppress(Broken):
            opened(start + rest, ANYONE)


@given(st.data())
def test_one_changed_byte_of_a_signed_message_never_goes_unseen(senders: Senders, data: st.DataObject) -> None:
    signed = _signed_once(senders)
    place = data.draw(st.integers(0, len(signed) - 1))
    changed = bytearray(signed)
    changed[place] = data.draw(st.integers(0, 255))

    try:
        text, signer = opened(bytes(changed), senders.all)
    except Broken:
        return
    # What still opens says the same, or is no envelope any more and has no signer.
    assert not signer or lines(text) == lines(TEXT)


SIGNED: list[bytes] = []


def _signed_once(senders: Senders) -> bytes:
    if not SIGNED:
        SIGNED.append(senders.sign(TEXT, "site", "-text"))
    return SIGNED[0]


def test_files_that_are_missing_or_something_else_name_their_option(senders: Senders, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")

    for trust, option in (
        (Trust(ca=str(tmp_path / "none")), "ca"),
        (Trust(ca=str(tmp_path)), "ca"),
        (Trust(key=senders.key("site")), "certificate"),
        (Trust(certificate=senders.site), "key"),
        (Trust(key=str(tmp_path / "text"), certificate=senders.site), "key"),
        (Trust(key=senders.key("curved"), certificate=senders.site), "key"),
        (Trust(key=senders.key("site"), certificate=str(tmp_path / "text")), "certificate"),
    ):
        with pytest.raises(WrongOption) as failed:
            trust.check()
        assert failed.value.option == option
    senders.all.check()


def test_records_tell_who_signed_them(senders: Senders) -> None:
    [job] = Reader(senders.all, now=NOW)(senders.sign(TEXT, "site", "-text"), {})
    [plain] = Reader(senders.all, now=NOW)(TEXT, {})

    assert (job["signer"], plain["signer"]) == (SITE, "")  # type: ignore[index]  # neither is broken
    with pytest.raises(Broken, match="not signed"):
        list(Reader(senders.all, signed_only=True, now=NOW)(TEXT, {}))


def test_data_that_is_no_text_at_all_is_refused() -> None:
    with pytest.raises(Broken, match="UTF-8"):
        list(Reader(now=NOW)(b"\xff\xfe\x00", {}))
    assert datetime.now(UTC) > NOW


def test_a_message_with_several_broken_records_is_set_aside_once() -> None:
    bad = {**JOB, "WallDuration": "-1"}

    *jobs, broken = Reader(now=NOW)(text(INDIVIDUAL, bad, JOB, bad, bad, JOB).encode(), {})

    assert len(jobs) == 2
    assert str(broken) == "record 1: WallDuration is negative: '-1'; and 2 more of this message"


@pytest.mark.parametrize(
    ("good", "bad"),
    [(b"\x16\x07example\x31\x0f", b"\x16\x07ex\xffmple\x31\x0f"), (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x23")],
    ids=["subject", "version"],
)
def test_a_certificate_that_cannot_be_read_breaks_its_message(senders: Senders, good: bytes, bad: bytes) -> None:
    signed = senders.sign(TEXT, "site", "-text")
    head, coded, tail = re.split(rb"(?<=\n\n)([A-Za-z0-9+/=\n]{500,})(?=\n\n--)", signed.replace(b"\r\n", b"\n"))
    der = base64.b64decode(coded)

    assert good in der
    bent = base64.encodebytes(der.replace(good, bad, 1))

    assert refused(head + bent + tail) == "signature: cannot be read"
