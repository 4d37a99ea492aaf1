"""Lists of withdrawn certificates, from the folder and by URL: what is believed, and what is done without one."""

import asyncio
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.authn.certificates.crls import RevocationList, UnreadableList
from ams.core.errors import CertificateRefused, Unavailable
from ams.outgoing.guard import Guard
from tests.authn.certificates.conftest import Site, World, presented
from tests.support.authorities import (
    DAY,
    HOUR,
    NO_CA,
    NOW,
    Authority,
    Extension,
    distribution_points,
    pem_list,
)
from tests.support.publishing import Publishing

REVOKED = "^Your certificate has been revoked$"
NO_POINTS = "^Your certificate is invalid. No CRLDistributionPoints found on the certificate$"


def scope(**what: object) -> Extension:
    nothing: dict[str, object] = dict.fromkeys(("full_name", "relative_name", "only_some_reasons"))
    nothing |= dict.fromkeys(
        ("only_contains_user_certs", "only_contains_ca_certs", "indirect_crl", "only_contains_attribute_certs"), False
    )
    return x509.IssuingDistributionPoint(**(nothing | what)), True  # type: ignore[arg-type]


@pytest.mark.parametrize("is_pem", [False, True])
async def test_a10_a_list_in_the_folder_is_read_first_and_nothing_is_fetched(
    site: Site, world: World, publishing: Publishing, is_pem: bool
) -> None:
    data = world.root.crl([world.jane.certificate])
    site.has_list(pem_list(data) if is_pem else data)

    with pytest.raises(CertificateRefused, match=REVOKED):
        await site.check(world.jane)
    await site.check(world.root.signs())
    assert not publishing.asked


async def test_a10_a_list_beside_certificates_in_a_pem_is_read(site: Site, world: World) -> None:
    with (site.folder / "ca.pem").open("ab") as file:
        file.write(pem_list(world.root.crl([world.jane.certificate])))

    with pytest.raises(CertificateRefused, match=REVOKED):
        await site.check(world.jane)


async def test_a10_a_new_list_in_the_folder_counts_at_once_for_those_remembered(site: Site, world: World) -> None:
    site.has_list(world.root.crl())
    checks = site.checks()
    await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)
    await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)
    assert checks.remembered == 1

    site.has_list(world.root.crl([world.jane.certificate]))
    site.clock.advance(1000)
    with pytest.raises(CertificateRefused, match=REVOKED):
        await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)


async def test_a10_a_list_is_fetched_once_for_all_and_kept(site: Site, world: World, publishing: Publishing) -> None:
    publishing.puts("/root.crl", world.root.crl([7]))
    checks = site.checks()
    leafs = [world.jane, *(world.root.signs(crl_urls=[publishing.url("/root.crl")]) for _ in range(3))]

    await asyncio.gather(*(checks.check(presented(each), "127.0.0.1", verify_host=False) for each in leafs))
    site.clock.advance(2 * 60_000)
    await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)

    assert publishing.asked["/root.crl"] == 1
    (found,) = checks.lists()
    assert (found.source, len(found)) == (publishing.url("/root.crl"), 1)
    assert next(checks.counters()).values == [({}, 1)]


async def test_a10_a_list_is_fetched_again_before_it_ends(site: Site, world: World, publishing: Publishing) -> None:
    publishing.puts("/root.crl", world.root.crl())
    checks = site.checks()
    await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)

    site.clock.advance(7 * 3_600_000)
    publishing.puts("/root.crl", world.root.crl([world.jane.certificate], this_update=NOW + 7 * HOUR))
    await checks._fetched.refresh_due()

    with pytest.raises(CertificateRefused, match=REVOKED):
        await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)
    assert publishing.asked["/root.crl"] == 2


async def test_a10_an_older_list_does_not_replace_a_newer_one(site: Site, world: World, publishing: Publishing) -> None:
    publishing.puts("/root.crl", world.root.crl([world.jane.certificate]))
    checks = site.checks()
    with pytest.raises(CertificateRefused, match=REVOKED):
        await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)

    publishing.puts("/root.crl", world.root.crl(this_update=NOW - DAY))
    site.clock.advance(7 * 3_600_000)
    await checks._fetched.refresh_due()
    with pytest.raises(CertificateRefused, match=REVOKED):
        await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)


async def test_a10_a_list_of_the_future_takes_no_place(site: Site, world: World, publishing: Publishing) -> None:
    """A CA whose clock was wrong once; all its later lists seem older."""
    publishing.puts("/root.crl", world.root.crl(this_update=NOW + DAY, next_update=NOW + 9 * DAY))
    checks = site.checks()
    with pytest.raises(Unavailable, match="is of no use: it is of the future"):
        await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)

    publishing.puts("/root.crl", world.root.crl())
    site.clock.advance(30_000)
    await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)


async def test_a10_lists_are_kept_over_a_restart(
    site: Site, world: World, publishing: Publishing, tmp_path: Path
) -> None:
    publishing.puts("/root.crl", world.root.crl([world.jane.certificate]))
    with pytest.raises(CertificateRefused, match=REVOKED):
        await site.check(world.jane, crl_folder=str(tmp_path))

    publishing.forget()
    with pytest.raises(CertificateRefused, match=REVOKED):
        await site.check(world.jane, crl_folder=str(tmp_path))
    assert not publishing.asked


async def test_a10_all_urls_are_tried_and_those_of_ldap_left_out(
    site: Site, world: World, publishing: Publishing
) -> None:
    good = publishing.puts("/good.crl", world.root.crl())
    urls = ["ldap://127.0.0.1/cn=ca", publishing.url("/missing.crl"), publishing.puts("/odd.crl", b"odd"), good]

    await site.check(world.root.signs(crl_urls=urls))
    assert list(publishing.asked) == ["/missing.crl", "/odd.crl", "/good.crl"]


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        (b"", 404, "Could not access CRL {url}"),
        (b"http://127.0.0.1/", 302, "Could not access CRL {url}"),
        (b"odd", 200, "Unable to parse CRL Data"),
    ],
)
async def test_a10_a_list_that_cannot_be_had_is_our_inability(
    site: Site, world: World, publishing: Publishing, data: bytes, status: int, said: str
) -> None:
    url = publishing.puts("/root.crl", data)
    publishing.statuses["/root.crl"] = status

    with pytest.raises(Unavailable) as caught:
        await site.check(world.jane)
    assert caught.value.message == said.format(url=url)
    await site.check(world.jane, revocation="warn")


async def test_a10_a_failure_is_remembered_for_half_a_minute(site: Site, world: World, publishing: Publishing) -> None:
    checks = site.checks()
    for _ in range(2):
        with pytest.raises(Unavailable):
            await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)
    assert publishing.asked["/root.crl"] == 1

    publishing.puts("/root.crl", world.root.crl())
    site.clock.advance(30_000)
    await checks.check(presented(world.jane), "127.0.0.1", verify_host=False)


async def test_a10_the_guard_keeps_fetches_off_private_addresses(
    site: Site, world: World, publishing: Publishing
) -> None:
    publishing.puts("/root.crl", world.root.crl())
    site.guard = Guard()

    with pytest.raises(Unavailable, match="Could not access CRL"):
        await site.check(world.jane)
    assert not publishing.asked


async def test_a10_a_list_of_another_signer_is_not_believed(site: Site, world: World, publishing: Publishing) -> None:
    forger = Authority.make("Test Root")
    url = publishing.puts("/root.crl", world.root.crl(signer=forger))
    site.has_list(world.root.crl([world.jane.certificate], signer=forger))

    with pytest.raises(Unavailable) as caught:
        await site.check(world.jane)
    assert caught.value.message == f"The CRL {url} is not signed by the CA of the certificate"


async def test_a10_a_list_of_a_ca_that_may_sign_none_is_not_believed(
    site: Site, world: World, publishing: Publishing
) -> None:
    only_certificates = Authority.make("Only certificates", usage=["key_cert_sign"])
    leaf = only_certificates.signs("Jane", crl_urls=[publishing.puts("/only.crl", only_certificates.crl())])
    site.trusts(only_certificates.certificate, name="only.pem")

    with pytest.raises(Unavailable, match="is not signed by the CA of the certificate$"):
        await site.check(leaf)


@pytest.mark.parametrize(
    "extension",
    [
        (x509.DeltaCRLIndicator(1), True),
        scope(only_contains_attribute_certs=True),
        scope(only_contains_ca_certs=True),
        scope(indirect_crl=True),
        scope(only_some_reasons=frozenset([x509.ReasonFlags.key_compromise])),
        scope(full_name=[x509.UniformResourceIdentifier("http://127.0.0.1/other.crl")]),
        (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"), True),
    ],
)
async def test_a10_lists_that_are_not_about_a_certificate_say_nothing_of_it(
    site: Site, world: World, publishing: Publishing, extension: Extension
) -> None:
    data = world.root.crl(extensions=[extension])
    publishing.puts("/root.crl", data)
    site.has_list(data)

    with pytest.raises(Unavailable, match="is of no use"):
        await site.check(world.jane)


@pytest.mark.parametrize("what", ["full_name", "only_contains_user_certs"])
async def test_a10_a_list_for_a_part_counts_for_that_part(
    site: Site, world: World, publishing: Publishing, what: str
) -> None:
    value = [x509.UniformResourceIdentifier(publishing.url("/root.crl"))] if what == "full_name" else True
    publishing.puts("/root.crl", world.root.crl([world.jane.certificate], extensions=[scope(**{what: value})]))

    with pytest.raises(CertificateRefused, match=REVOKED):
        await site.check(world.jane)


async def test_a10_a_list_beyond_its_end_is_replaced_by_one_from_its_url_or_a_matter_of_policy(
    site: Site, world: World, publishing: Publishing
) -> None:
    stale = world.root.crl([7], this_update=NOW - 2 * DAY, next_update=NOW - DAY)
    site.has_list(stale)
    offline = world.root.signs()

    with pytest.raises(Unavailable, match=r"^The CRL .*/ca.r0 is out of date$"):
        await site.check(offline)
    await site.check(offline, revocation="warn")
    with pytest.raises(CertificateRefused, match=REVOKED):
        await site.check(world.root.signs(serial=7), revocation="warn")

    publishing.puts("/root.crl", stale)
    with pytest.raises(Unavailable, match="is out of date"):
        await site.check(world.jane)
    publishing.puts("/root.crl", world.root.crl())
    await site.check(world.jane)


async def test_a10_a_withdrawal_that_was_taken_back_is_none(site: Site, world: World) -> None:
    site.has_list(world.root.crl([world.jane.certificate], reason=x509.ReasonFlags.remove_from_crl))
    await site.check(world.jane)

    site.has_list(world.root.crl([world.jane.certificate], reason=x509.ReasonFlags.certificate_hold))
    with pytest.raises(CertificateRefused, match=REVOKED):
        await site.check(world.jane)


async def test_a10_the_whole_chain_is_looked_at(site: Site, world: World, publishing: Publishing) -> None:
    leaf = world.below.signs(crl_urls=[publishing.puts("/below.crl", world.below.crl())])
    publishing.puts("/root.crl", world.root.crl())
    await site.check(leaf, world.below.certificate)

    publishing.puts("/root.crl", world.root.crl([world.below.certificate]))
    with pytest.raises(CertificateRefused) as caught:
        await site.check(leaf, world.below.certificate)
    assert caught.value.message == "Your certificate is of a CA whose own has been revoked: CN=Test CA"


@pytest.mark.parametrize(
    ("extensions", "said"),
    [
        ([NO_CA], NO_POINTS),
        ([NO_CA, distribution_points("ldap://127.0.0.1/cn=ca")], "can be fetched by http or https"),
    ],
)
async def test_a10_without_any_list_the_policy_decides(
    site: Site, world: World, extensions: list[Extension], said: str
) -> None:
    leaf = world.root.signs(extensions=extensions)

    with pytest.raises(CertificateRefused, match=said):
        await site.check(leaf)
    await site.check(leaf, revocation="warn")
    await site.check(leaf, verify_certificate=False)


async def test_a10_in_development_nothing_is_fetched_for_a_certificate_of_anybody(
    site: Site, publishing: Publishing
) -> None:
    leaf = Authority.make("Stranger").signs(crl_urls=[publishing.url("/root.crl")])

    await site.check(leaf, trust_unknown_cas=True)
    assert not publishing.asked


USERS = scope(only_contains_user_certs=True)
CRL = Authority.make("Test Root").crl(range(1, 4), reason=x509.ReasonFlags.superseded, extensions=[USERS])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(CRL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a10_changed_bytes_of_a_list_raise_nothing_unexpected(changes: list[tuple[int, int]]) -> None:
    data = bytearray(CRL)
    for place, value in changes:
        data[place] = value
    try:
        found = RevocationList.read(bytes(data), "odd")
    except UnreadableList:
        return
    assert isinstance(found.revokes(1), bool)


async def test_a10_a_login_that_gives_up_does_not_end_a_fetch_for_others(
    site: Site, world: World, publishing: Publishing
) -> None:
    publishing.puts("/root.crl", world.root.crl())
    publishing.held.clear()
    checks = site.checks()
    first = asyncio.create_task(checks.check(presented(world.jane), "127.0.0.1", verify_host=False))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(checks.check(presented(world.jane), "127.0.0.1", verify_host=False))
    await asyncio.sleep(0)
    first.cancel()
    publishing.held.set()

    await second
    assert first.cancelled()
    assert publishing.asked["/root.crl"] == 1
