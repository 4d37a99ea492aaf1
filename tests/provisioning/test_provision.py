"""`ams provision` against a real AMS, with test servers for GOCDB and the certificate service."""

import functools
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ams.cli.provision import read_ini
from ams.client import wire
from ams.core.errors import BadSettings
from tests.provisioning.conftest import UUID, Project, Provision, Site
from tests.provisioning.listings import APEL, CLOUD, endpoint, site, sites_xml
from tests.support.certificate_service import DATE, KEY
from tests.support.commands import Ran
from tests.support.documents import ROOT, blocks, is_shown
from tests.support.served import InProcessService

A, B, C = (endpoint(f"{letter}.example.org") for letter in "abc")
NOVA = "org.openstack.nova"


def name(letter: str) -> str:
    return f"gLite-APEL---{letter}-example-org---SITE-A"


def printed_json(ran: Ran) -> Any:
    return json.loads(ran.stdout)


def test_endpoints_get_users_bindings_and_their_topic_once_and_a_dry_run_shows_that(egi: Site) -> None:
    listed = A, B, endpoint("c", dn=""), endpoint("d", in_production="N"), endpoint("e", site="SITE-A", dn="odd")
    egi.set_listing(APEL, *listed)
    planned, shown = egi.run_gocdb("--dry-run", "-o", "json"), egi.run_gocdb("--dry-run")
    assert [step["step"] for step in printed_json(planned)["steps"]] == ["join", "bind", "join", "bind", "allow"]
    assert printed_json(planned)["applied"] is False
    assert f"join   {name('a')}" in shown.stdout
    assert (egi.certificates.changes, egi.project.members(), egi.project.on_list(APEL)) == ([], {}, [])

    ran = egi.run_gocdb("-o", "json")

    assert ran.returncode == 1
    assert printed_json(ran)["users_created"] == [name("a"), name("b")]
    assert [each["reason"] for each in printed_json(ran)["left_out"]] == ["no certificate", "not in production"]
    assert [each["host"] for each in printed_json(ran)["failed"]] == ["e"]
    members = egi.project.members()
    assert members[name("a")].email == "grid@example.org"
    assert members[name("a")].projects[0].roles == ["publisher"]
    assert egi.project.on_list(APEL) == [name("a"), name("b")]
    assert egi.bindings_by_name[name("a")] == {
        "name": name("a"), "uuid": egi.bindings_by_name[name("a")]["uuid"], "created_on": DATE, "service_uuid": UUID,
        "host": "localhost", "auth_identifier": "CN=a.example.org,O=Example,C=GR",
        "unique_key": members[name("a")].uuid, "auth_type": "x509",
    }  # fmt: skip
    tokens = [KEY, *(egi.project.client.call(wire.get_user(user)).token for user in members)]
    everything = " ".join([ran.stdout, ran.stderr, *egi.certificates.asked, *egi.gocdb.asked])
    assert [token for token in tokens if token in everything] == []  # A23

    egi.set_listing(APEL, A, B)
    egi.certificates.changes.clear()
    again = egi.run_gocdb()
    assert (again.returncode, again.stdout.partition("\n")[0]) == (0, "nothing to do")
    assert egi.certificates.changes == []


def test_a22_users_made_anew_and_hosts_with_new_certificates_are_bound_anew(egi: Site) -> None:
    egi.set_listing(APEL, A)
    egi.run_gocdb()
    egi.project.client.call(wire.delete_user(name("a")))

    assert printed_json(egi.run_gocdb("-o", "json"))["bindings_updated"] == [name("a")]
    assert egi.bindings_by_name[name("a")]["unique_key"] == egi.project.members()[name("a")].uuid
    assert egi.project.on_list(APEL) == [name("a")]

    egi.set_listing(APEL, replace(A, dn="/C=GR/O=New/CN=a.example.org"))
    certified = printed_json(egi.run_gocdb("-o", "json"))
    assert (certified["bindings_updated"], certified["users_created"]) == ([name("a")], [])
    assert egi.bindings_by_name[name("a")]["auth_identifier"] == "CN=a.example.org,O=New,C=GR"


def test_a24_a_certificate_service_that_fails_for_one_endpoint_serves_the_others(egi: Site) -> None:
    egi.set_listing(APEL, A, B)
    egi.certificates.failing[name("a")] = 500
    ran = egi.run_gocdb("-o", "json")
    assert ran.returncode == 1
    assert [(each["host"], each["text"][:4]) for each in printed_json(ran)["failed"]] == [("a.example.org", "bind")]
    assert name("b") in egi.bindings_by_name

    egi.certificates.failing[name("a")] = 409  # the name is taken elsewhere
    taken = egi.run_gocdb()
    assert taken.returncode == 1
    assert "FAILED  a.example.org (gLite-APEL, SITE-A): bind" in taken.stdout

    egi.certificates.failing.clear()
    assert egi.run_gocdb().returncode == 0
    assert name("a") in egi.bindings_by_name


def test_a_service_that_is_another_one_ends_the_run_and_gets_no_token(egi: Site) -> None:
    egi.set_listing(APEL, A)

    assert egi.run_gocdb("--service", "ams-devel").returncode == 4
    assert egi.run_gocdb("--service-host", "elsewhere").returncode == 2
    assert egi.run_gocdb("--service-uuid", "another").returncode == 2
    assert egi.run_gocdb(AMS_AUTHN_KEY="wrong").returncode == 3
    ran = egi.run_gocdb(AMS_AUTHN_KEY=None, AMS_AUTHN_ENDPOINT="https://elsewhere.example.org")
    assert (ran.returncode, "not given to another host" in ran.stderr) == (2, True)
    assert egi.certificates.changes == []


def test_a22_vanished_endpoints_are_reported_and_removed_when_that_is_asked_for(egi: Site) -> None:
    egi.set_listing(APEL, A, B, C)
    egi.run_gocdb()
    egi.set_listing(APEL, A)
    halved = egi.run_gocdb("--remove")
    egi.gocdb.answers[APEL] = 500
    away = egi.run_gocdb("--remove")
    assert (halved.returncode, away.returncode) == (1, 1)
    assert "FAILED  no user was removed: 2 of 3 are more than half" in halved.stdout
    assert "answered 500" in away.stdout
    assert len(egi.bindings_by_name) == len(egi.project.members()) == 3

    egi.set_listing(APEL, A, B)
    ran = egi.run_gocdb("-o", "json")
    assert (ran.returncode, printed_json(ran)["vanished"]["users"], printed_json(ran)["steps"]) == (0, [name("c")], [])
    removed = printed_json(egi.run_gocdb("--remove", "-o", "json"))
    assert [step["step"] for step in removed["steps"]] == ["unbind", "disallow", "leave"]
    assert (
        sorted(egi.bindings_by_name)
        == sorted(egi.project.members())
        == egi.project.on_list(APEL)
        == [name("a"), name("b")]
    )

    assert egi.run_gocdb("--remove").stdout.startswith("nothing to do\n")
    egi.set_listing(APEL, A, B, C)
    assert egi.run_gocdb().returncode == 0
    assert egi.project.on_list(APEL) == [name("a"), name("b"), name("c")]


def test_an_endpoint_of_another_type_now_is_taken_off_the_list_of_the_first(egi: Site) -> None:
    both = ("gocdb", "--feed", egi.gocdb.feed_url, "--service-type", APEL, "--service-type", CLOUD)
    egi.project.topic("eu-egi-cloud-accounting")
    egi.set_listing(APEL, A, B)
    egi.set_listing(CLOUD, replace(A, service_type=CLOUD))
    egi.provision(*both)
    egi.set_listing(APEL, B)

    ran = egi.provision(*both, "--remove", "-o", "json")

    assert printed_json(ran)["vanished"]["access"] == [{"topic": APEL, "user": name("a")}]
    assert egi.project.on_list(APEL) == [name("b")]
    assert egi.project.on_list("eu-egi-cloud-accounting") == [name("a")]


def test_clouds_get_a_topic_and_a_subscription_each(egi: Site) -> None:
    project, reader = egi.project, f"reader-of-{egi.project.name}"
    command = ("cloud-info", "--feed", egi.gocdb.feed_url, "--service-type", NOVA, "--consumer")
    project.client.call(wire.create_member(project.name, reader, ["consumer"]))
    egi.gocdb.answers["SITE.B"] = sites_xml(site("SITE.B"))
    egi.set_listing(NOVA, endpoint("nova.example.org", service_type=NOVA, site="SITE.B", primary_key="12 34G0"))

    ran = egi.provision(*command, reader, "-o", "json")

    topic, user = "SITE_SITE-B_ENDPOINT_1234G0", "org-openstack-nova---nova-example-org---SITE-B"
    assert (ran.returncode, printed_json(ran)["failed"]) == (0, [])
    assert project.on_list(topic) == [user]
    assert project.client.call(wire.get_subscription_acl(project.name, topic)).authorized_users == [reader]
    assert project.client.call(wire.get_subscription(project.name, topic)).ack_deadline_seconds == 100
    assert egi.bindings_by_name[user]["auth_identifier"] == "CN=nova.example.org,O=Example,C=GR"
    assert egi.provision(*command, reader).stdout.startswith("nothing to do\n")

    egi.set_listing(NOVA, endpoint("x.example.org", service_type=NOVA, primary_key="5G0"))
    later = egi.provision(*command, "nobody", "-o", "json")
    assert printed_json(later)["vanished"]["topics"] == [topic]
    assert (later.returncode, printed_json(later)["failed"][0]["host"]) == (1, "x.example.org")
    assert project.on_list("SITE_SITE-A_ENDPOINT_5G0") == ["org-openstack-nova---x-example-org---SITE-A"]


def test_the_scripts_configuration_is_taken_as_it_is(egi: Site, service: InProcessService, tmp_path: Path) -> None:
    egi.set_listing(APEL, replace(A, host="ini.example.org"))
    config = tmp_path / "scripts.cfg"
    config.write_text(f"""[AMS]
ams_project: {egi.project.name}
goc_db_host: {egi.gocdb.feed_url}
service-types: {APEL}, {APEL}
users_role: publisher
ams_token: {service.token}
ams_host: {egi.project.client.endpoint}
ams_email: fallback@example.org
[AUTHN]
authn_token: {KEY}
authn_host: {egi.certificates.url}
service_uuid: {UUID}
service_host: localhost
[LOGS]
syslog_socket: /dev/log
colour: blue
""")
    nothing = dict.fromkeys(("AMS_ENDPOINT", "AMS_TOKEN", "AMS_PROJECT", "AMS_AUTHN_ENDPOINT", "AMS_AUTHN_KEY"))

    ran = egi.provision("gocdb", "-c", str(config), "-verify", **nothing)

    assert ran.returncode == 0, ran.stderr
    assert egi.project.on_list(APEL) == ["gLite-APEL---ini-example-org---SITE-A"]
    assert "LOGS.colour in the configuration means nothing here" in ran.stderr


GUIDE = ROOT / "docs" / "how-to" / "provision-from-gocdb.md"


def test_the_files_of_the_guide_make_the_plan_it_shows(provision: Provision, project: Project) -> None:
    assert "--feed demo/gocdb/endpoints.xml --sites demo/gocdb/sites.xml" in GUIDE.read_text()
    (shown,) = blocks(GUIDE, "text")
    project.topic(APEL)
    feed, sites = (str(ROOT / "demo" / "gocdb" / name) for name in ("endpoints.xml", "sites.xml"))
    command = ("gocdb", "--feed", feed, "--sites", sites, "--service-type", APEL)

    planned, done, again = provision(*command, "--dry-run"), provision(*command), provision(*command)

    assert is_shown(shown, planned.stdout), planned.stdout
    assert (done.returncode, again.returncode) == (0, 0)
    assert "nothing to do" in again.stdout


@pytest.mark.systemd
def test_the_timer_and_its_service_are_in_order_and_give_the_program_little(tmp_path: Path) -> None:
    files = {name: tmp_path / f"ams-provision@gocdb.{name}" for name in ("service", "timer")}
    for name, file in files.items():
        text = (ROOT / "deploy" / "systemd" / f"ams-provision@.{name}").read_text()
        file.write_text(text.replace("/opt/ams/bin/ams", "/bin/true"))
    analyze = functools.partial(subprocess.run, capture_output=True, text=True)

    verified = analyze(["systemd-analyze", "verify", *files.values()])
    security = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", files["service"]]
    exposure = analyze(security)

    assert (verified.returncode, verified.stderr) == (0, "")
    assert exposure.returncode == 0, exposure.stdout


WHOLE = """
[AMS]
ams_project: egi_cloud_info
goc_db_host: goc.example.org/gocdbpi/public/?method=get_service_endpoint&service_type={{service-type}}
service-types: org.openstack.nova, eu.egi.cloud.vm-management.occi
users_role: publisher
ams_consumer: cloud-info-reader
cert: /etc/grid-security/hostcert.pem
cert_key: /etc/grid-security/hostkey.pem
ams_token: 50%secret
ams_host: ams.example.org
ams_email: grid@example.org
[AUTHN]
authn_token: key
authn_host: authn.example.org:8443
service_uuid: 1-2
service_host: ams.example.org
[LOGS]
syslog_socket: /dev/log
"""


def test_every_key_of_the_scripts_is_understood_and_no_secret_shown(tmp_path: Path) -> None:
    path = tmp_path / "scripts.cfg"
    path.write_text(WHOLE)

    ini = read_ini(str(path))

    assert ini.unknown == ()
    assert all(getattr(ini, name) for name in ini.__slots__ if name != "unknown")
    assert ini.service_types == ("org.openstack.nova", "eu.egi.cloud.vm-management.occi")
    assert ini.feed.startswith("https://goc.example.org/")
    assert (ini.endpoint, ini.authn_endpoint) == ("https://ams.example.org", "https://authn.example.org:8443")
    assert (ini.token, "secret" in repr(ini)) == ("50%secret", False)
    path.write_text("ams_token: secret\n")
    with pytest.raises(BadSettings) as told:
        read_ini(str(path))
    assert "secret" not in str(told.value)
    with pytest.raises(BadSettings, match="No such file"):
        read_ini(str(tmp_path / "none.cfg"))
