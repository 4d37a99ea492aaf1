import base64
import re
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken, WrongOption
from ams.pipeline.jobs.accounting.envelope import EnvelopeTrust, Opened, open_envelope
from ams.pipeline.jobs.accounting.reader import parse
from tests.pipeline.jobs.accounting.texts import INDIVIDUAL, JOB, NOW, text
from tests.support.authorities import NOW as TODAY
from tests.support.authorities import Authority, key_usage

pytestmark = pytest.mark.openssl

SITE = "/DC=org/DC=example/O=Site-A/CN=ce01.site-a.example"
CURVED_NAME = "/DC=org/DC=example/CN=curved"
TEXT = text(INDIVIDUAL, JOB).encode()
TRUST_OF_ANYONE = EnvelopeTrust()


class Senders:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority, self.all = Authority.make("ca"), EnvelopeTrust(self.path("ca"), self.key("site"), self.path("site"))
        key, other_key = (rsa.generate_private_key(65537, 2048) for _ in range(2))
        usage = (key_usage("digital_signature", "key_encipherment"),)
        made = {
            "ca": authority, "other": Authority.make("other"),
            "site": authority.signs(name_of(SITE), extensions=usage, key=key),
            "curved": authority.signs(name_of(CURVED_NAME), extensions=usage),
            "old": authority.signs(name_of(SITE), extensions=usage, key=key, not_after=TODAY - timedelta(days=1)),
            "stranger": authority.signs("stranger", extensions=usage, key=other_key),
        }  # fmt: skip
        for name, each in made.items():
            each.write(folder, name)

    def sign(self, data: bytes, who: str = "site", *options: str) -> bytes:
        return openssl("smime", "-sign", "-signer", self.path(who), "-inkey", self.key(who), *options, given=data)

    def encrypt(self, data: bytes, *options: str) -> bytes:
        return openssl("smime", "-encrypt", *options, self.path("site"), given=data)

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}.pem")

    def key(self, name: str) -> str:
        return str(self.folder / f"{name}.key")


def name_of(slashes: str) -> list[tuple[str, str]]:
    return [(label, value) for label, _, value in (part.partition("=") for part in slashes.split("/")[1:])]


def openssl(*arguments: str, given: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=given, capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def senders(tmp_path_factory: pytest.TempPathFactory) -> Senders:
    return Senders(tmp_path_factory.mktemp("senders"))


def lines(data: bytes) -> list[bytes]:
    return data.strip().splitlines()


def get_refusal(data: bytes, trust: EnvelopeTrust = TRUST_OF_ANYONE) -> str:
    with pytest.raises(Broken) as failed:
        open_envelope(data, trust)
    return str(failed.value)


@pytest.mark.parametrize("envelope", [b"", b"MIME-Version: 1.0\nContent-Type: text/plain\n\n"])
def test_a_text_without_a_signature_has_no_signer(envelope: bytes) -> None:
    assert open_envelope(envelope + TEXT, TRUST_OF_ANYONE) == Opened(TEXT, "")


@pytest.mark.parametrize("options", [(), ("-md", "sha512"), ("-nosmimecap",), ("-crlfeol",)])
@pytest.mark.parametrize(("who", "name"), [("site", SITE), ("curved", CURVED_NAME)])
def test_a_signed_text_tells_its_signer(senders: Senders, who: str, name: str, options: tuple[str, ...]) -> None:
    text, signer = open_envelope(senders.sign(TEXT, who, "-text", *options), senders.all)
    assert (lines(text), signer) == (lines(TEXT), name)


@pytest.fixture(scope="module")
def signed_text(senders: Senders) -> bytes:
    return senders.sign(TEXT, "site", "-text").replace(b"\r\n", b"\n")


def test_line_ends_that_transport_changed_do_not_break_a_signature(senders: Senders, signed_text: bytes) -> None:
    assert open_envelope(signed_text.replace(b"\n", b"\r\n"), senders.all).signer == SITE
    assert open_envelope(b"\n" + signed_text, senders.all).signer == SITE


def test_a_changed_text_or_a_hash_that_can_be_forged_is_refused(senders: Senders, signed_text: bytes) -> None:
    changed = signed_text.replace(b"WallDuration: 3600", b"WallDuration: 9600")
    assert get_refusal(changed) == "signature: the text was changed after it was signed"
    assert "not SHA-2" in get_refusal(senders.sign(TEXT, "site", "-text", "-md", "sha1"))


def test_a_signature_of_another_key_is_refused(senders: Senders) -> None:
    # Signed by the authority's key, but with the site's name.
    forged = openssl(
        *("cms", "-sign", "-signer", senders.path("ca"), "-inkey", senders.key("ca"), "-text", "-nocerts"),
        *("-certfile", senders.path("site")), given=TEXT,
    )  # fmt: skip

    assert get_refusal(forged) == "signature: the signer's certificate is not inside"


def test_a_certificate_of_an_authority_we_do_not_know_is_refused(senders: Senders, signed_text: bytes) -> None:
    assert (
        get_refusal(signed_text, EnvelopeTrust(ca=senders.path("other")))
        == "signature: its certificate is of no authority we know"
    )
    assert open_envelope(signed_text, EnvelopeTrust(ca=str(senders.folder))).signer == SITE


def test_a_certificate_that_is_no_valid_der_is_refused_without_a_warning(senders: Senders, signed_text: bytes) -> None:
    signature = x509.load_pem_x509_certificate(Path(senders.path("site")).read_bytes()).signature

    def damage(found: re.Match[bytes]) -> bytes:
        der = base64.b64decode(found[0])
        assert der.count(b"\0" + signature) == 1
        # Seven bits of the last byte are said to be unused, and are not 0: BER allows it.
        return base64.encodebytes(der.replace(b"\0" + signature, b"\7" + signature[:-1] + b"\xff"))

    assert get_refusal(re.sub(rb"(?<=\n\n)MII[\w+/=\n]+", damage, signed_text)) == "signature: cannot be read"


def test_a_certificate_that_had_expired_is_refused(senders: Senders) -> None:
    assert get_refusal(senders.sign(TEXT, "old", "-text")) == "signature: made when its certificate was not valid"


def test_an_encrypted_text_is_opened_with_its_key_and_set_aside_without(senders: Senders, signed_text: bytes) -> None:
    encrypted = senders.encrypt(signed_text, "-aes128")
    assert (open_envelope(encrypted, senders.all).signer, get_refusal(encrypted)) == (SITE, "encrypted")
    wrong = EnvelopeTrust(key=senders.key("stranger"), certificate=senders.path("stranger"))
    assert get_refusal(encrypted, wrong).startswith("encrypted: not for the key given")


@pytest.mark.parametrize(("headers", "reason"), [
    (b"MIME-Version: 1.0\n", "ends in its headers"), (b"Content-Type: image/png\n\n", "content type"),
    (b"Content-Type: multipart/signed\n\nx", "one text and one signature"),
    (b"Content-Type: multipart/signed; boundary=b\n\n--b\nx\n--b--\n", "one text and one signature"),
    (b"Content-Type: multipart/signed; boundary=b\n\n--b\n\nx\n--b\n\nx\n--b--\n", "signature: cannot be read"),
    (b"Content-Type: text/plain\nContent-Transfer-Encoding: x\n\nx", "its encoding"),
    (b"Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\nx", "is not base64"),
    (b"Content-Type: application/pkcs7-mime; smime-type=signed-data\n\nx", "not as a part beside"),
])  # fmt: skip
def test_envelopes_that_cannot_be_opened_say_why(headers: bytes, reason: str) -> None:
    assert reason in get_refusal(headers)


@given(st.data())
def test_a_changed_byte_of_a_message_is_always_seen(senders: Senders, signed_text: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(signed_text) - 1))
    changed = bytearray(signed_text)
    changed[place] = data.draw(st.integers(0, 255))

    try:
        text, signer = open_envelope(bytes(changed), senders.all)
    except Broken:
        return
    # An altered envelope opens to the same text, or is invalid, or has no signer.
    assert not signer or lines(text) == lines(TEXT)


def test_files_that_are_missing_or_something_else_name_their_option(senders: Senders, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")

    for trust, option in (
        (EnvelopeTrust(ca=str(tmp_path / "none")), "ca"), (EnvelopeTrust(ca=str(tmp_path)), "ca"),
        (EnvelopeTrust(key=senders.key("site")), "certificate"),
        (EnvelopeTrust(certificate=senders.path("site")), "key"),
        (EnvelopeTrust(key=str(tmp_path / "text"), certificate=senders.path("site")), "key"),
        (EnvelopeTrust(key=senders.key("curved"), certificate=senders.path("site")), "key"),
        (EnvelopeTrust(key=senders.key("site"), certificate=str(tmp_path / "text")), "certificate"),
    ):  # fmt: skip
        with pytest.raises(WrongOption) as failed:
            trust.check()
        assert failed.value.option == option
    senders.all.check()


def test_records_tell_who_signed_them(senders: Senders, signed_text: bytes) -> None:
    [job] = parse(signed_text, {}, senders.all, now=NOW)
    [plain] = parse(TEXT, {}, senders.all, now=NOW)

    assert (job["signer"], plain["signer"]) == (SITE, "")  # type: ignore[index]  # neither is broken
    with pytest.raises(Broken, match="not signed"):
        list(parse(TEXT, {}, senders.all, signed_only=True, now=NOW))


def test_a_message_with_several_broken_records_is_set_aside_once() -> None:
    bad = {**JOB, "WallDuration": "-1"}
    data = text(INDIVIDUAL, bad, JOB, bad, bad, JOB).encode()
    *jobs, broken = parse(data, {}, TRUST_OF_ANYONE, now=NOW)
    assert len(jobs) == 2
    assert str(broken) == "record 1: WallDuration is negative: '-1'; and 2 more of this message"


@pytest.mark.parametrize(("good", "bad"), [
    (b"\x16\x07example\x31\x0f", b"\x16\x07ex\xffmple\x31\x0f"), (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x23"),
], ids=["subject", "version"])  # fmt: skip
def test_a_certificate_that_cannot_be_read_breaks_its_message(signed_text: bytes, good: bytes, bad: bytes) -> None:
    head, coded, tail = re.split(rb"(?<=\n\n)([A-Za-z0-9+/=\n]{500,})(?=\n\n--)", signed_text)
    der = base64.b64decode(coded)

    assert good in der
    bent = base64.encodebytes(der.replace(good, bad, 1))

    assert get_refusal(head + bent + tail) == "signature: cannot be read"
