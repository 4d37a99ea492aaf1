"""Kept keys: what a file of them is believed for."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ams.core.clock import Milliseconds
from ams.core.issuer import Issuer
from ams.identity.jwks import KeySet
from ams.identity.kept_keys import Kept, KeptKeys
from demo.issuer import ExampleIssuer

FETCHED_ON = Milliseconds(1_700_000_000_000)


@pytest.fixture
def kept(tmp_path: Path) -> KeptKeys:
    return KeptKeys(str(tmp_path / "issuers"))


@pytest.fixture
def found(example: ExampleIssuer) -> KeySet:
    return KeySet.of(example.public_keys())


def test_keys_are_read_as_they_were_written_and_are_for_the_owner_only(
    kept: KeptKeys, found: KeySet, issuer: Issuer, tmp_path: Path
) -> None:
    kept.write(issuer, found.keys, FETCHED_ON)

    assert kept.read(issuer) == Kept(found, FETCHED_ON)
    path = tmp_path / "issuers" / "example.json"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert os.listdir(path.parent) == ["example.json"]


def test_keys_of_another_url_are_not_those_of_the_issuer(kept: KeptKeys, found: KeySet, issuer: Issuer) -> None:
    kept.write(issuer, found.keys, FETCHED_ON)

    assert kept.read(replace(issuer, url="https://example.org")) is None
    assert kept.read(replace(issuer, jwks_url="https://example.org/jwks")) is None


def test_a_file_that_is_torn_or_nonsense_is_as_if_it_were_not_there(
    kept: KeptKeys, found: KeySet, issuer: Issuer, tmp_path: Path
) -> None:
    assert kept.read(issuer) is None
    kept.write(issuer, found.keys, FETCHED_ON)
    path = tmp_path / "issuers" / "example.json"
    whole = path.read_bytes()

    for data in (
        b"",
        whole[: len(whole) // 2],
        b"[]",
        b"{}",
        b"\xff",
        whole.replace(b'"EC"', b"1").replace(b'"RSA"', b"2"),
    ):
        path.write_bytes(data)
        assert kept.read(issuer) is None
    path.unlink()
    path.mkdir()
    assert kept.read(issuer) is None


def test_what_cannot_be_written_is_not_kept(found: KeySet, issuer: Issuer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("", str(tmp_path / "file" / "issuers")):
        kept = KeptKeys(folder)
        kept.write(issuer, found.keys, FETCHED_ON)
        assert kept.read(issuer) is None
        kept.remove(issuer)


def test_what_was_removed_is_gone(kept: KeptKeys, found: KeySet, issuer: Issuer) -> None:
    kept.write(issuer, found.keys, FETCHED_ON)
    kept.remove(issuer)

    assert kept.read(issuer) is None
