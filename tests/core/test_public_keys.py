"""Public keys of named tokens: docs/reference/tokens.md."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ams.core.errors import InvalidInput
from ams.core.names import TokenName
from ams.core.public_keys import PublicKey, client_email, is_client_email
from tests.support.program_keys import private_key, private_pem, public_key, public_pem

PEM, SPKI = Encoding.PEM, PublicFormat.SubjectPublicKeyInfo


def test_a_key_is_the_same_in_either_form_of_pem_and_has_the_same_id() -> None:
    pkcs1 = private_key().public_key().public_bytes(PEM, PublicFormat.PKCS1).decode()

    read = PublicKey.read(public_pem())

    assert read == PublicKey.read(pkcs1) == PublicKey.read(read.pem)
    assert read.pem == public_pem()
    assert len(read.id) == 40
    assert read.id != public_key("two").id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no key",
        "\ud800",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        private_pem(),
        public_pem() + "\n" * 9000,
        ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(PEM, SPKI).decode(),
        rsa.generate_private_key(65537, 1024).public_key().public_bytes(PEM, SPKI).decode(),
        rsa.generate_private_key(3, 2048).public_key().public_bytes(PEM, SPKI).decode(),
        rsa.RSAPublicNumbers(65537, (1 << 4096) + 1).public_key().public_bytes(PEM, SPKI).decode(),
    ],
    ids=["empty", "text", "half of a character", "damaged", "private", "long", "curve", "short", "exponent", "large"],
)
def test_what_is_no_such_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="^Invalid public_key: give an RSA key of 2048 to 4096 bits"):
        PublicKey.read(text)


def test_a_program_is_called_by_token_and_key() -> None:
    email = client_email(TokenName("ci"), "ab")

    assert email == "ci@ab.ams.invalid"
    assert is_client_email(email, "ab")
    assert not is_client_email(email, "b")
