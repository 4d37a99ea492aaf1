import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import Damaged, Unusable
from ams.storage.secrets import Secrets, key_file, new_token, parse_key

SECRETS = Secrets(b"1" * 32)
OTHER_SECRETS = Secrets(b"2" * 32)
OWNER = "owner"


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_a_token_of_any_length_reads_back_for_its_owner(token: str) -> None:
    assert SECRETS.decrypt(SECRETS.encrypt(token, OWNER), OWNER) == token


KINDS = (Secrets.encrypt, Secrets.decrypt), (Secrets.seal_push, Secrets.open_push), (Secrets.seal, Secrets.open)


@pytest.mark.parametrize(("seal", "unseal"), KINDS)
def test_what_is_sealed_is_of_no_use_for_another_owner_or_as_another_kind_nor_when_it_is_damaged(
    seal: Callable[[Secrets, str, str], bytes], unseal: Callable[[Secrets, bytes, str], str]
) -> None:
    sealed = seal(SECRETS, "secret", OWNER)
    assert unseal(SECRETS, sealed, OWNER) == "secret"
    assert b"secret" not in sealed

    for other in [sealed[:-1], b""] + [flip_bit(sealed, place) for place in (0, 5, 12, 20, len(sealed) - 1)]:
        with pytest.raises(Damaged):
            unseal(SECRETS, other, OWNER)
    with pytest.raises(Damaged):
        unseal(SECRETS, sealed, "thief")
    for _, of_another_kind in KINDS:
        if of_another_kind is not unseal:
            with pytest.raises(Damaged):
                of_another_kind(SECRETS, sealed, OWNER)


def flip_bit(sealed: bytes, place: int) -> bytes:
    return sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]


def test_another_key_neither_reads_nor_finds() -> None:
    with pytest.raises(Damaged):
        OTHER_SECRETS.decrypt(SECRETS.encrypt("token", OWNER), OWNER)
    assert OTHER_SECRETS.digest("token") != SECRETS.digest("token")
    assert OTHER_SECRETS.fingerprint != SECRETS.fingerprint


def test_a_new_token_is_64_lower_case_hex_digits_and_never_the_same() -> None:
    first, second = new_token(), new_token()
    assert first != second
    assert len(first) == 64
    assert set(first) <= set("0123456789abcdef")


def test_a_key_file_is_made_once_for_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "token.key"
    path.with_suffix(".key.new").write_text("half a ke")  # a crash left it

    first = key_file(str(path), create=True)

    assert len(first) == 32
    assert (key_file(str(path), create=True), key_file(str(path), create=False)) == (first, first)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["token.key"]


def test_a_lost_key_is_not_replaced_behind_the_operators_back(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"token\.key is missing"):
        key_file(str(tmp_path / "token.key"), create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "00", "zz" * 32, "00" * 33, "é" * 64])
def test_a_bad_key_stops_the_start_without_being_shown(text: str) -> None:
    with pytest.raises(Unusable) as caught:
        parse_key(text)
    assert caught.value.message == "the token key must be 64 hex digits"
