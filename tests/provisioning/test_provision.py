"""`ams provision` against a real AMS, with GOCDB and the certificate service as servers of the tests."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ams.client import wire
from tests.provisioning.conftest import UUID, Project, Provision, bound
from tests.provisioning.gocdb import Gocdb
from tests.provisioning.listings import APEL, CLOUD, endpoint, site, sites_xml
from tests.support.certificate_service import DATE, KEY, CertificateService

Lists = Callable[..., None]
A, B, C = (endpoint(f"{letter}.example.org") for letter in "abc")
NOVA = "org.openstack.nova"


def name(letter: str) -> str:
    return f"gLite-APEL---{letter}-example-org---SITE-A"


@pytest.fixture
def gocdb(provision: Provision, listed: Gocdb) -> Provision:
    """Run `ams provision gocdb` for one type."""
    return lambda *more, **said: provision("gocdb", "--feed", listed.feed, "--service-type", APEL, *more, **said)


def test_endpoints_get_users_bindings_and_their_topic(
    gocdb: Provision, project: Project, certificates: CertificateService, lists: Lists
) -> None:
    project.topic(APEL)
    lists(APEL, A, B, endpoint("c", dn=""), endpoint("d", in_production="N"), endpoint("e", site="SITE-A", dn="odd"))

    ran = gocdb("-o", "json")

    assert ran.code == 1
    assert ran.json["users_created"] == [name("a"), name("b")]
    assert [each["reason"] for each in ran.json["left_out"]] == ["no certificate", "not in production"]
    assert [each["host"] for each in ran.json["failed"]] == ["e"]
    members = project.members()
    assert members[name("a")].email == "grid@example.org"
    assert members[name("a")].projects[0].roles == ["publisher"]
    assert project.on_list(APEL) == [name("a"), name("b")]
    assert bound(certificates)[name("a")] == {
        "name": name("a"),
        "uuid": bound(certificates)[name("a")]["uuid"],
        "created_on": DATE,
        "service_uuid": UUID,
        "host": "localhost",
        "auth_identifier": "CN=a.example.org,O=Example,C=GR",
        "unique_key": members[name("a")].uuid,
        "auth_type": "x509",
    }


def test_the_second_run_changes_nothing(
    gocdb: Provision, project: Project, certificates: CertificateService, lists: Lists
) -> None:
    project.topic(APEL)
    lists(APEL, A, B)
    first = gocdb()
    certificates.changes.clear()

    ran = gocdb()

    assert (first.code, ran.code) == (0, 0)
    assert ran.out.startswith("nothing to do\n")
    assert certificates.changes == []


def test_a_dry_run_shows_the_plan_and_changes_nothing(
    gocdb: Provision, project: Project, certificates: CertificateService, lists: Lists
) -> None:
    project.topic(APEL)
    lists(APEL, A)

    ran, shown = gocdb("--dry-run", "-o", "json"), gocdb("--dry-run")

    assert [step["step"] for step in ran.json["steps"]] == ["join", "bind", "allow"]
    assert ran.json["applied"] is False
    assert f"join   {name('a')}" in shown.out
    assert (certificates.changes, project.members(), project.on_list(APEL)) == ([], {}, [])


def test_a22_a_user_who_was_made_anew_is_bound_anew(
    gocdb: Provision, project: Project, certificates: CertificateService, lists: Lists
) -> None:
    project.topic(APEL)
    lists(APEL, A)
    gocdb()
    project.client.call(wire.delete_user(name("a")))

    ran = gocdb("-o", "json")

    assert ran.json["bindings_updated"] == [name("a")]
    assert bound(certificates)[name("a")]["unique_key"] == project.members()[name("a")].uuid
    assert project.on_list(APEL) == [name("a")]


def test_a_user_of_the_service_who_was_there_before_becomes_a_member(
    gocdb: Provision, project: Project, certificates: CertificateService, lists: Lists
) -> None:
    project.topic(APEL)
    lists(APEL, endpoint("adopted.example.org"))
    there = project.client.call(wire.create_user("gLite-APEL---adopted-example-org---SITE-A", wire.UserDetails()))

    ran = gocdb()

    assert ran.code == 0
    assert bound(certificates)[there.name]["unique_key"] == there.uuid
    assert project.on_list(APEL) == [there.name]


def test_a_host_with_a_new_certificate_keeps_its_user(
    gocdb: Provision, project: Project, certificates: CertificateService, lists: Lists
) -> None:
    project.topic(APEL)
    lists(APEL, A)
    gocdb()
    lists(APEL, replace(A, dn="/C=GR/O=New/CN=a.example.org"))

    ran = gocdb("-o", "json")

    assert ran.json["bindings_updated"] == [name("a")]
    assert bound(certificates)[name("a")]["auth_identifier"] == "CN=a.example.org,O=New,C=GR"
    assert ran.json["users_created"] == []


def test_a24_a_certificate_service_that_fails_for_one_endpoint_serves_the_others(
    gocdb: Provision, project: Project, certificates: CertificateService, lists: Lists
) -> None:
    project.topic(APEL)
    lists(APEL, A, B)
    certificates.failing[name("a")] = 500

    ran = gocdb("-o", "json")

    assert ran.code == 1
    assert [(each["host"], each["text"][:4]) for each in ran.json["failed"]] == [("a.example.org", "bind")]
    assert name("b") in bound(certificates)
    certificates.failing.clear()
    assert gocdb().code == 0
    assert name("a") in bound(certificates)


def test_a24_a_name_that_is_taken_elsewhere_is_told(
    gocdb: Provision, project: Project, certificates: CertificateService, lists: Lists
) -> None:
    project.topic(APEL)
    lists(APEL, A)
    certificates.failing[name("a")] = 409

    ran = gocdb()

    assert ran.code == 1
    assert "FAILED  a.example.org (gLite-APEL, SITE-A): bind" in ran.out


def test_a24_the_service_type_may_be_called_otherwise_and_one_that_is_not_there_ends_the_run(
    gocdb: Provision, lists: Lists, certificates: CertificateService
) -> None:
    lists(APEL, A)

    assert gocdb("--service", "ams-devel").code == 4
    assert gocdb("--service-host", "elsewhere").code == 2
    assert gocdb("--service-uuid", "another").code == 2
    assert gocdb(AMS_AUTHN_KEY="wrong").code == 3
    assert certificates.changes == []


def test_a23_no_token_is_in_an_address_or_in_what_is_said(
    gocdb: Provision, project: Project, certificates: CertificateService, lists: Lists, listed: Gocdb
) -> None:
    project.topic(APEL)
    lists(APEL, A)

    ran = gocdb("-o", "json")

    tokens = [KEY, *(project.client.call(wire.get_user(user)).token for user in project.members())]
    everything = " ".join([ran.out, ran.err, *certificates.asked, *listed.asked])
    assert [token for token in tokens if token in everything] == []


def test_a23_the_token_of_ams_goes_to_no_other_host(gocdb: Provision, lists: Lists) -> None:
    lists(APEL, A)

    ran = gocdb(AMS_AUTHN_KEY=None, AMS_AUTHN_ENDPOINT="https://elsewhere.example.org")

    assert (ran.code, "not given to another host" in ran.err) == (2, True)


def test_a22_vanished_endpoints_are_reported_and_removed_when_that_is_asked_for(
    gocdb: Provision, project: Project, certificates: CertificateService, lists: Lists
) -> None:
    project.topic(APEL)
    lists(APEL, A, B, C)
    gocdb()
    lists(APEL, A, B)

    told = gocdb("-o", "json")
    assert (told.code, told.json["vanished"]["users"], told.json["steps"]) == (0, [name("c")], [])

    removed = gocdb("--remove", "-o", "json")
    assert [step["step"] for step in removed.json["steps"]] == ["unbind", "disallow", "leave"]
    assert sorted(bound(certificates)) == [name("a"), name("b")]
    assert sorted(project.members()) == project.on_list(APEL) == [name("a"), name("b")]

    assert gocdb("--remove").out.startswith("nothing to do\n")
    lists(APEL, A, B, C)
    assert gocdb().code == 0
    assert project.on_list(APEL) == [name("a"), name("b"), name("c")]


def test_a22_nobody_is_removed_when_a_listing_is_doubtful_or_does_not_come(
    gocdb: Provision, project: Project, certificates: CertificateService, lists: Lists, listed: Gocdb
) -> None:
    project.topic(APEL)
    lists(APEL, A, B, C)
    gocdb()

    lists(APEL, A)
    halved = gocdb("--remove")
    listed.answers[APEL] = 500
    away = gocdb("--remove")

    assert (halved.code, away.code) == (1, 1)
    assert "FAILED  no user was removed: 2 of 3 are more than half" in halved.out
    assert "answered 500" in away.out
    assert len(certificates.bindings) == len(project.members()) == 3


def test_an_endpoint_of_another_type_now_is_taken_off_the_list_of_the_first(
    provision: Provision, project: Project, lists: Lists, listed: Gocdb
) -> None:
    both = ("gocdb", "--feed", listed.feed, "--service-type", APEL, "--service-type", CLOUD)
    project.topic(APEL)
    project.topic("eu-egi-cloud-accounting")
    lists(APEL, A, B)
    lists(CLOUD, replace(A, service_type=CLOUD))
    provision(*both)
    lists(APEL, B)

    ran = provision(*both, "--remove", "-o", "json")

    assert ran.json["vanished"]["access"] == [{"topic": APEL, "user": name("a")}]
    assert project.on_list(APEL) == [name("b")]
    assert project.on_list("eu-egi-cloud-accounting") == [name("a")]


def test_clouds_get_a_topic_and_a_subscription_each(
    provision: Provision, project: Project, certificates: CertificateService, lists: Lists, listed: Gocdb
) -> None:
    command = ("cloud-info", "--feed", listed.feed, "--service-type", NOVA, "--consumer")
    reader = f"reader-of-{project.name}"
    project.client.call(wire.create_member(project.name, reader, ["consumer"]))
    listed.answers["SITE.B"] = sites_xml(site("SITE.B"))
    lists(NOVA, endpoint("nova.example.org", service_type=NOVA, site="SITE.B", primary_key="12 34G0"))

    ran = provision(*command, reader, "-o", "json")

    topic, user = "SITE_SITE-B_ENDPOINT_1234G0", "org-openstack-nova---nova-example-org---SITE-B"
    assert (ran.code, ran.json["failed"]) == (0, [])
    assert project.on_list(topic) == [user]
    assert project.client.call(wire.get_subscription_acl(project.name, topic)).authorized_users == [reader]
    assert project.client.call(wire.get_subscription(project.name, topic)).ack_deadline_seconds == 100
    assert bound(certificates)[user]["auth_identifier"] == "CN=nova.example.org,O=Example,C=GR"
    assert provision(*command, reader).out.startswith("nothing to do\n")

    lists(NOVA, endpoint("x.example.org", service_type=NOVA, primary_key="5G0"))
    later = provision(*command, "nobody", "-o", "json")
    assert later.json["vanished"]["topics"] == [topic]
    assert (later.code, later.json["failed"][0]["host"]) == (1, "x.example.org")
    assert project.on_list("SITE_SITE-A_ENDPOINT_5G0") == ["org-openstack-nova---x-example-org---SITE-A"]


def test_the_scripts_configuration_is_taken_as_it_is(
    provision: Provision,
    project: Project,
    certificates: CertificateService,
    lists: Lists,
    listed: Gocdb,
    tmp_path: Path,
    service,
) -> None:
    project.topic(APEL)
    lists(APEL, replace(A, host="ini.example.org"))
    config = tmp_path / "scripts.cfg"
    config.write_text(f"""[AMS]
ams_project: {project.name}
goc_db_host: {listed.feed}
service-types: {APEL}, {APEL}
users_role: publisher
ams_token: {service.token}
ams_host: {project.client.endpoint}
ams_email: fallback@example.org
[AUTHN]
authn_token: {KEY}
authn_host: {certificates.url}
service_uuid: {UUID}
service_host: localhost
[LOGS]
syslog_socket: /dev/log
colour: blue
""")
    nothing = dict.fromkeys(("AMS_ENDPOINT", "AMS_TOKEN", "AMS_PROJECT", "AMS_AUTHN_ENDPOINT", "AMS_AUTHN_KEY"))

    ran = provision("gocdb", "-c", str(config), "-verify", **nothing)

    assert ran.code == 0, ran.err
    assert project.on_list(APEL) == ["gLite-APEL---ini-example-org---SITE-A"]
    assert "LOGS.colour in the configuration means nothing here" in ran.err
