import pytest

from ams.core.errors import ServiceFailed
from ams.provisioning.endpoints import Judged, LeftOut, Reason, judge
from ams.provisioning.gocdb import Endpoint, Site
from tests.provisioning.listings import endpoint, site


def why(found: Endpoint, place: Site | None, **said) -> tuple[str, str]:
    judged = judge([found], lambda _: place, **said)
    assert not judged.served
    return judged.left_out[0].reason.value, judged.left_out[0].text


def failed(judged: Judged) -> list[LeftOut]:
    return [each for each in judged.left_out if not each.reason.by_rule]


@pytest.mark.parametrize(
    ("infrastructure", "certification"),
    [
        ("Test", "Certified"), ("", "Certified"), ("Production", "Candidate"), ("Production", "Suspended"),
        ("Production", ""),
    ],
)  # fmt: skip
def test_a21_sites_not_in_production_or_not_certified_are_left_out(infrastructure: str, certification: str) -> None:
    place = site(infrastructure=infrastructure, certification=certification)
    assert why(endpoint("a"), place)[0] == Reason.SITE


@pytest.mark.parametrize("certification", ["Certified", "Uncertified"])
def test_sites_in_production_are_served(certification: str) -> None:
    (found,) = judge(
        [endpoint("a.b")], lambda _: site(certification=certification, email=""), email="x@example.org"
    ).served

    assert (found.name, found.email, found.topic) == ("gLite-APEL---a-b---SITE-A", "x@example.org", "gLite-APEL")


def test_endpoints_without_certificate_or_not_in_production_are_counted() -> None:
    assert why(endpoint("a", dn=""), site())[0] == Reason.NO_DN
    assert why(endpoint("a", in_production="N"), site())[0] == Reason.NOT_IN_PRODUCTION


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"site": ""}, "no SITENAME"), ({"in_production": ""}, "no IN_PRODUCTION"),
        ({"dn": "host/a.example.org"}, "no distinguished name"), ({"dn": "/CN=a\\xff"}, "HOSTDN"),
        ({"site": "SITE A"}, "cannot be the name of a user"), ({"host": "a" * 250}, "cannot be the name of a user"),
    ],
)  # fmt: skip
def test_a24_what_is_wrong_with_one_endpoint_is_told_and_the_others_go_on(said: dict[str, str], text: str) -> None:
    bad = endpoint(**{"host": "bad", **said})

    judged = judge([bad, endpoint("good")], lambda name: site(name))

    assert [each.endpoint.host for each in judged.served] == ["good"]
    assert text in failed(judged)[0].text


def test_a24_a_site_that_cannot_be_asked_for_fails_its_endpoints_alone() -> None:
    def find(name: str) -> Site | None:
        if name == "AWAY":
            raise ServiceFailed("GOCDB is busy")
        return site(name) if name == "SITE-A" else None

    judged = judge([endpoint("a", site="AWAY"), endpoint("b", site="GONE"), endpoint("c")], find)

    assert [each.endpoint.host for each in judged.served] == ["c"]
    assert [each.text for each in failed(judged)] == ["site AWAY: GOCDB is busy", "GOCDB lists no site GONE"]


@pytest.mark.parametrize(
    ("dn", "normal"),
    [
        ("/DC=org/DC=terena/DC=tcs/C=DE/O=hosts/O=GermanGrid/OU=DESY/CN=host/example.com",
         "CN=host/example.com,OU=DESY,O=hosts+O=GermanGrid,C=DE,DC=org+DC=terena+DC=tcs"),
        ("/C=GR/O=A=B/CN=one/CN=two", "CN=two,O=A=B,C=GR"),
        ("/C=GR/serialNumber=7/UID=x/CN=a/emailAddress=a@example.org", "E=a@example.org,SERIALNUMBER=7,CN=a,C=GR"),
    ],
    ids=["slash in a value", "last name counts, value whole", "serial number and uid"],
)  # fmt: skip
def test_a25_subjects_are_read_as_the_certificate_service_reads_them(dn: str, normal: str) -> None:
    (found,) = judge([endpoint("a", dn=dn)], site).served
    assert found.dn == normal


def test_endpoints_of_one_name_with_different_certificates_are_left_to_people() -> None:
    judged = judge([endpoint("a.b"), endpoint("a-b"), endpoint("c"), endpoint("c")], site)
    assert [each.endpoint.host for each in judged.served] == ["c", "c"]
    assert len(failed(judged)) == 2
