"""GOCDB: parsing endpoints and sites, and which endpoints are served."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.core.errors import BadSettings, ServiceFailed
from ams.provisioning import gocdb as module
from ams.provisioning.endpoints import JudgedListing, LeftOut, Reason, judge
from ams.provisioning.gocdb import Feed, Site, read_endpoints, read_sites, sites_address
from tests.provisioning.listings import (
    APEL,
    CLOUD,
    Gocdb,
    endpoint,
    endpoint_xml,
    endpoints_xml,
    gocdb,
    results,
    site,
    site_xml,
    sites_xml,
)
from tests.support.certificates import Authority, Pair

ONE, OTHER = endpoint("a.example.org"), endpoint("b.example.org")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Pair:
    return authority.signs("robot")


@pytest.fixture(scope="module")
def running_gocdb(authority: Authority) -> Iterator[Gocdb]:
    host = authority.signs("localhost", hosts=["localhost"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.pair.chain)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(host.chain, host.key)
    with gocdb(tls) as served:
        yield served


@pytest.fixture
def server(running_gocdb: Gocdb) -> Gocdb:
    running_gocdb.answers, running_gocdb.asked = {}, []
    return running_gocdb


@pytest.fixture
def open_feed(server: Gocdb, authority: Authority, client: Pair) -> Iterator[Feed]:
    ca, sites = authority.pair.chain, sites_address(server.feed_url)
    with Feed(server.feed_url, sites, ca=ca, cert=client.chain, key=client.key) as opened:
        yield opened


def test_endpoints_of_a_type_are_asked_for_with_our_certificate(server: Gocdb, open_feed: Feed) -> None:
    server.answers[CLOUD] = endpoints_xml(endpoint("x", service_type=CLOUD))
    assert [each.host for each in open_feed.endpoints(CLOUD)] == ["x"]
    assert server.asked == [f"method=get_service_endpoint&service_type={CLOUD}"]


def test_a23_a_server_nobody_vouches_for_is_not_read(server: Gocdb, client: Pair, authority: Authority) -> None:
    for own, reason in (({"cert": client.chain, "key": client.key}, "not signed by a trusted CA"),
                        ({"ca": authority.pair.chain}, "cannot read")):  # fmt: skip
        with (Feed(server.feed_url, sites_address(server.feed_url), **own) as feed,
              pytest.raises(ServiceFailed, match=reason)):  # fmt: skip
            feed.endpoints(APEL)


def test_a26_pages_are_followed_to_the_last(server: Gocdb, open_feed: Feed) -> None:
    server.answers[APEL] = results([endpoint_xml(ONE)], following="?method=get_service_endpoint&page=2")
    server.answers["2"] = results([endpoint_xml(OTHER)], following=f"{server.url}?page=3")
    server.answers["3"] = results([])
    assert open_feed.endpoints(APEL) == [ONE, OTHER]


@pytest.mark.parametrize(("following", "told"), [
    ("?page=2", "do not end"), ("https://elsewhere.example.org/?page=2", "another host"), ("?page=9", "answered 404"),
])  # fmt: skip
def test_a26_a_listing_that_stops_halfway_is_none(server: Gocdb, open_feed: Feed, following: str, told: str) -> None:
    server.answers[APEL] = results([endpoint_xml(ONE)], following=following)
    server.answers["2"] = results([], following="?page=2")
    with pytest.raises(ServiceFailed, match=told):
        open_feed.endpoints(APEL)


def test_an_answer_without_end_is_given_up(server: Gocdb, open_feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    server.answers[APEL] = endpoints_xml(ONE)
    with pytest.raises(ServiceFailed, match="larger than 100 bytes"):
        open_feed.endpoints(APEL)


def test_a_site_is_asked_for_once(server: Gocdb, open_feed: Feed) -> None:
    server.answers["SITE-A"] = sites_xml(site())
    server.answers["GONE"] = sites_xml()

    assert [open_feed.site(name) for name in ("SITE-A", "SITE-A", "GONE", "GONE")] == [site(), site(), None, None]
    assert len(server.asked) == 2
    for _ in range(2):
        with pytest.raises(ServiceFailed, match="answered 404"):
            open_feed.site("AWAY")
    assert len(server.asked) == 3


def test_files_are_read_as_answers_are(tmp_path: Path) -> None:
    listed, places = tmp_path / "endpoints.xml", tmp_path / "sites.xml"
    listed.write_bytes(endpoints_xml(ONE, endpoint("x", service_type=CLOUD)))
    places.write_bytes(sites_xml(site(), site("SITE-B")))

    with Feed(str(listed), str(places)) as feed:
        assert feed.endpoints(APEL) == [ONE]
        assert feed.site("SITE-B") == site("SITE-B")
        assert feed.site("SITE-C") is None
    with Feed(str(tmp_path / "none.xml"), "x") as feed, pytest.raises(ServiceFailed, match="No such file"):
        feed.endpoints(APEL)


def test_a23_what_is_of_no_use_is_refused_before_anything_is_asked(tmp_path: Path, authority: Authority) -> None:
    for make, reason in ((lambda: Feed("http://goc.example.org/?method=x", "sites.xml"), "without TLS"),
                         (lambda: Feed("a", "b", ca=str(tmp_path / "none.pem")), "CA file"),
                         (lambda: Feed("a", "b", cert=authority.pair.chain), "client certificate"),
                         (lambda: sites_address("endpoints.xml"), "--sites")):  # fmt: skip
        with pytest.raises(BadSettings, match=reason):
            make()


def test_endpoints_and_sites_are_read_as_they_are_listed() -> None:
    other = endpoint("b.example.org", dn="/CN=Ünï & co")
    assert read_endpoints(results(map(endpoint_xml, [ONE, other])))[0] == [ONE, other]
    assert read_sites(results([site_xml(site())]))[0] == [site()]


def test_a24_a_missing_element_is_an_empty_text() -> None:
    (read,) = read_endpoints(results(["<SERVICE_ENDPOINT><HOSTNAME> a </HOSTNAME></SERVICE_ENDPOINT>"]))[0]
    assert (read.host, read.dn, read.service_type) == ("a", "", "")


BOMB = b'<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><results>&b;</results>'


@pytest.mark.parametrize("body", [
    b"", b"{}", b"<results>", BOMB, b"<html>busy</html>", b'<?xml version="1.0" encoding="nope"?><results/>',
], ids=["nothing", "json", "cut", "entities", "html", "unknown encoding"])  # fmt: skip
def test_what_is_no_listing_is_refused_and_an_error_of_gocdb_told_in_its_words(body: bytes) -> None:
    with pytest.raises(ServiceFailed):
        read_endpoints(body)
    with pytest.raises(ServiceFailed, match="Unsupported parameter: typ"):
        read_endpoints(b"<error>Unsupported parameter: typ</error>")


def failed_entries(judged: JudgedListing) -> list[LeftOut]:
    return [each for each in judged.left_out if not each.reason.by_rule]


@pytest.mark.parametrize(("reason", "said", "place"), [
    (Reason.SITE, {}, {"infrastructure": "Test"}), (Reason.SITE, {}, {"infrastructure": ""}),
    (Reason.SITE, {}, {"certification": "Candidate"}), (Reason.SITE, {}, {"certification": "Suspended"}),
    (Reason.SITE, {}, {"certification": ""}), (Reason.NO_DN, {"dn": ""}, {}),
    (Reason.NOT_IN_PRODUCTION, {"in_production": "N"}, {}),
])  # fmt: skip
def test_a21_sites_out_of_production_are_left_out(reason: Reason, said: dict[str, str], place: dict[str, str]) -> None:
    judged = judge([endpoint("a", **said)], lambda _: site(**place))
    assert judged.served == []
    assert [each.reason for each in judged.left_out] == [reason]


@pytest.mark.parametrize("certification", ["Certified", "Uncertified"])
def test_sites_in_production_are_served(certification: str) -> None:
    (found,) = judge(
        [endpoint("a.b")], lambda _: site(certification=certification, email=""), email="x@example.org"
    ).served
    assert (found.name, found.email, found.topic) == ("gLite-APEL---a-b---SITE-A", "x@example.org", "gLite-APEL")


@pytest.mark.parametrize(("said", "text"), [
    ({"site": ""}, "no SITENAME"), ({"in_production": ""}, "no IN_PRODUCTION"),
    ({"dn": "host/a.example.org"}, "no distinguished name"), ({"dn": "/CN=a\\xff"}, "HOSTDN"),
    ({"site": "SITE A"}, "cannot be the name of a user"), ({"host": "a" * 250}, "cannot be the name of a user"),
])  # fmt: skip
def test_a24_what_is_wrong_with_one_endpoint_is_told_and_the_others_go_on(said: dict[str, str], text: str) -> None:
    judged = judge([endpoint(**{"host": "bad", **said}), endpoint("good")], lambda name: site(name))
    assert [each.endpoint.host for each in judged.served] == ["good"]
    assert text in failed_entries(judged)[0].text


def test_a24_a_site_that_cannot_be_asked_for_fails_its_endpoints_alone() -> None:
    def find(name: str) -> Site | None:
        if name == "AWAY":
            raise ServiceFailed("GOCDB is busy")
        return site(name) if name == "SITE-A" else None

    judged = judge([endpoint("a", site="AWAY"), endpoint("b", site="GONE"), endpoint("c")], find)

    assert [each.endpoint.host for each in judged.served] == ["c"]
    assert [each.text for each in failed_entries(judged)] == ["site AWAY: GOCDB is busy", "GOCDB lists no site GONE"]


@pytest.mark.parametrize(("dn", "normal"), [
    ("/DC=org/DC=terena/DC=tcs/C=DE/O=hosts/O=GermanGrid/OU=DESY/CN=host/example.com",
     "CN=host/example.com,OU=DESY,O=hosts+O=GermanGrid,C=DE,DC=org+DC=terena+DC=tcs"),
    ("/C=GR/O=A=B/CN=one/CN=two", "CN=two,O=A=B,C=GR"),
    ("/C=GR/serialNumber=7/UID=x/CN=a/emailAddress=a@example.org", "E=a@example.org,SERIALNUMBER=7,CN=a,C=GR"),
], ids=["slash in a value", "last name counts, value whole", "serial number and uid"])  # fmt: skip
def test_a25_subjects_are_read_as_the_certificate_service_reads_them(dn: str, normal: str) -> None:
    (found,) = judge([endpoint("a", dn=dn)], site).served
    assert found.dn == normal


def test_endpoints_of_one_name_with_different_certificates_are_left_to_people() -> None:
    judged = judge([endpoint("a.b"), endpoint("a-b"), endpoint("c"), endpoint("c")], site)
    assert [each.endpoint.host for each in judged.served] == ["c", "c"]
    assert len(failed_entries(judged)) == 2
