"""The folder of authorities: what is read, what is left out, and when it is read again."""

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from structlog.testing import capture_logs

from ams.authn.certificates.names import comparable
from ams.authn.certificates.trust import TrustFolder
from ams.core.clock import ManualClock
from tests.authn.certificates.conftest import BELIEVED, Site, judged
from tests.support.authorities import Authority, pem_list


@pytest.mark.parametrize("name", ["ca.pem", "ca.crt", "1a2b3c4d.0", "1a2b3c4d.1"])
async def test_certificates_are_read_under_each_name_they_have(site: Site, name: str) -> None:
    os.unlink(site.folder / "ca.pem")
    site.trusts(site.root.certificate, name=name)
    assert await site.judge(site.jane, verify_certificate=False) == BELIEVED


async def test_links_and_der_are_read_and_other_files_are_not(site: Site, tmp_path: Path) -> None:
    other = Authority.make("Other")
    os.rename(site.folder / "ca.pem", site.folder / "ca.info")
    (site.folder / "other.crt").write_bytes(other.certificate.public_bytes(Encoding.DER))
    os.symlink("other.crt", site.folder / "12345678.0")
    os.symlink("nowhere", site.folder / "12345679.0")
    (site.folder / "folder.pem").mkdir()

    assert await site.judge(other.signs(), verify_certificate=False) == BELIEVED
    assert next(site.checks().gauges()).values == [({}, 1)]
    assert (await site.judge(site.jane, verify_certificate=False)).startswith("refused")


async def test_what_is_broken_is_left_out_and_the_rest_counts(site: Site) -> None:
    good = (site.folder / "ca.pem").read_bytes()
    (site.folder / "a.pem").write_bytes(b"garbage")
    (site.folder / "b.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + good)
    (site.folder / "c.r0").write_bytes(b"garbage")
    os.unlink(site.folder / "ca.pem")

    assert await site.judge(site.jane, verify_certificate=False) == BELIEVED


async def test_a_folder_that_is_not_there_trusts_nobody(site: Site) -> None:
    os.rename(site.folder, site.folder.with_name("elsewhere"))
    assert (await site.judge(site.jane, verify_certificate=False)).startswith("refused")


async def test_changes_of_the_folder_are_seen_within_a_second(site: Site) -> None:
    other = Authority.make("Other")
    leaf = other.signs()
    checks = site.checks(verify_certificate=False)
    assert (await judged(checks, leaf)).startswith("refused")

    site.trusts(other.certificate, name="other.pem")
    assert (await judged(checks, leaf)).startswith("refused")
    site.clock.advance(1000)
    assert await judged(checks, leaf) == BELIEVED

    os.unlink(site.folder / "other.pem")
    checks.reload()
    assert (await judged(checks, leaf)).startswith("refused")


def test_a_folder_without_a_ca_is_warned_of(tmp_path: Path) -> None:
    with capture_logs() as said:
        TrustFolder(str(tmp_path), ManualClock())

    assert [(each["event"], each["log_level"]) for each in said] == [
        ("authorities.read", "info"),
        ("authorities.none", "warning"),
    ]


def test_files_that_did_not_change_are_not_read_again(site: Site) -> None:
    site.has_list(pem_list(site.root.crl([7])))
    folder = TrustFolder(str(site.folder), site.clock)
    (known,) = folder.trust.lists.values()
    site.trusts(Authority.make("Other").certificate, name="other.pem")

    folder.reload()

    assert folder.trust.generation == 2
    assert folder.trust.lists[comparable(site.root.certificate.subject)][0] is known[0]
    folder.reload()
    assert folder.trust.generation == 2


async def test_a_list_that_is_being_written_does_not_take_the_place_of_the_old_one(site: Site) -> None:
    data = site.root.crl([7])
    site.has_list(data)
    checks = site.checks()
    site.has_list(data[:100])
    checks.reload()

    assert "revoked" in await judged(checks, site.root.signs(serial=7))
    os.unlink(site.folder / "ca.r0")
    checks.reload()
    assert not checks.lists()
