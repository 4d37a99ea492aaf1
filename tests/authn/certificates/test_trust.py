"""The folder of authorities: what is read, what is left out, and when it is read again."""

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from structlog.testing import capture_logs

from ams.authn.certificates.trust import TrustFolder
from ams.core.clock import ManualClock
from ams.core.errors import CertificateRefused
from tests.authn.certificates.conftest import Site, World, presented
from tests.support.authorities import Authority, pem_list


@pytest.mark.parametrize("name", ["ca.pem", "ca.crt", "1a2b3c4d.0", "1a2b3c4d.1"])
async def test_certificates_are_read_under_each_name_they_have(site: Site, world: World, name: str) -> None:
    os.unlink(site.folder / "ca.pem")
    site.trusts(world.root.certificate, name=name)

    await site.check(world.jane, verify_certificate=False)


async def test_links_and_der_are_read_and_other_files_are_not(site: Site, world: World, tmp_path: Path) -> None:
    other = Authority.make("Other")
    os.rename(site.folder / "ca.pem", site.folder / "ca.info")
    (site.folder / "other.crt").write_bytes(other.certificate.public_bytes(Encoding.DER))
    os.symlink("other.crt", site.folder / "12345678.0")
    os.symlink("nowhere", site.folder / "12345679.0")
    (site.folder / "folder.pem").mkdir()

    await site.check(other.signs(), verify_certificate=False)
    assert next(site.checks().gauges()).values == [({}, 1)]
    with pytest.raises(CertificateRefused):
        await site.check(world.jane, verify_certificate=False)


async def test_what_is_broken_is_left_out_and_the_rest_counts(site: Site, world: World) -> None:
    good = (site.folder / "ca.pem").read_bytes()
    (site.folder / "a.pem").write_bytes(b"garbage")
    (site.folder / "b.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + good)
    (site.folder / "c.r0").write_bytes(b"garbage")
    os.unlink(site.folder / "ca.pem")

    await site.check(world.jane, verify_certificate=False)


async def test_a_folder_that_is_not_there_trusts_nobody(site: Site, world: World) -> None:
    os.rename(site.folder, site.folder.with_name("elsewhere"))

    with pytest.raises(CertificateRefused):
        await site.check(world.jane, verify_certificate=False)


async def test_changes_of_the_folder_are_seen_within_a_second(site: Site, world: World) -> None:
    other = Authority.make("Other")
    leaf = presented(other.signs())
    checks = site.checks(verify_certificate=False)
    with pytest.raises(CertificateRefused):
        await checks.check(leaf, "127.0.0.1", verify_host=False)

    site.trusts(other.certificate, name="other.pem")
    with pytest.raises(CertificateRefused):
        await checks.check(leaf, "127.0.0.1", verify_host=False)
    site.clock.advance(1000)
    await checks.check(leaf, "127.0.0.1", verify_host=False)

    os.unlink(site.folder / "other.pem")
    checks.reload()
    with pytest.raises(CertificateRefused):
        await checks.check(leaf, "127.0.0.1", verify_host=False)


def test_a_folder_without_a_ca_is_warned_of(tmp_path: Path) -> None:
    with capture_logs() as said:
        TrustFolder(str(tmp_path), ManualClock())

    assert [(each["event"], each["log_level"]) for each in said] == [
        ("authorities.read", "info"),
        ("authorities.none", "warning"),
    ]


def test_files_that_did_not_change_are_not_read_again(site: Site, world: World) -> None:
    site.has_list(pem_list(world.root.crl([7])))
    folder = TrustFolder(str(site.folder), site.clock)
    (known,) = folder.trust.lists.values()
    site.trusts(Authority.make("Other").certificate, name="other.pem")

    folder.reload()

    assert folder.trust.generation == 2
    assert folder.trust.lists[world.root.certificate.subject.public_bytes()][0] is known[0]
    folder.reload()
    assert folder.trust.generation == 2


async def test_a_list_that_is_being_written_does_not_take_the_place_of_the_old_one(site: Site, world: World) -> None:
    data = world.root.crl([7])
    site.has_list(data)
    checks = site.checks()
    site.has_list(data[:100])
    checks.reload()

    with pytest.raises(CertificateRefused, match="revoked"):
        await checks.check(presented(world.root.signs(serial=7)), "127.0.0.1", verify_host=False)
    os.unlink(site.folder / "ca.r0")
    checks.reload()
    assert not checks.lists()
