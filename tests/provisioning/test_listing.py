import pytest

from ams.core.errors import ServiceFailed
from ams.provisioning.listing import endpoints, sites
from tests.provisioning.listings import endpoint, endpoint_xml, results, site, site_xml


def test_endpoints_and_sites_are_read_as_they_are_listed() -> None:
    one, other = endpoint("a.example.org"), endpoint("b.example.org", dn="/CN=Ünï & co")

    assert list(endpoints(results(map(endpoint_xml, [one, other]))).items) == [one, other]
    assert list(sites(results([site_xml(site())])).items) == [site()]


def test_a26_the_next_page_is_where_the_answer_says() -> None:
    assert endpoints(results([], following="?next_cursor=7&x=1")).next == "?next_cursor=7&x=1"
    assert endpoints(results([])).next == ""


def test_a24_a_missing_element_is_an_empty_text() -> None:
    (read,) = endpoints(results(["<SERVICE_ENDPOINT><HOSTNAME> a </HOSTNAME></SERVICE_ENDPOINT>"])).items

    assert (read.host, read.dn, read.service_type) == ("a", "", "")


BOMB = b'<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><results>&b;</results>'


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"<results>", BOMB, b"<html>busy</html>", b'<?xml version="1.0" encoding="nope"?><results/>'],
    ids=["nothing", "json", "cut", "entities", "html", "unknown encoding"],
)
def test_what_is_no_listing_is_refused(body: bytes) -> None:
    with pytest.raises(ServiceFailed):
        endpoints(body)


def test_an_error_of_gocdb_is_told_in_its_words() -> None:
    with pytest.raises(ServiceFailed, match="Unsupported parameter: typ"):
        endpoints(b"<error>Unsupported parameter: typ</error>")
