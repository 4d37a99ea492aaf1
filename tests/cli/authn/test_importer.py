"""Bindings brought in from CSV files, and whole databases of the reference."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ams.cli.authn.importer import mend_name, read_reference
from ams.cli.exit_codes import Exit
from ams.core.errors import BadDocument
from tests.cli.authn.conftest import Authn
from tests.support.certificate_service import CertificateService
from tests.support.commands import Ran

HEAD = "name,service_type,host,auth_identifier,unique_key,issuer\n"
JANE = 'jane,ams,ams.example,"/C=GR/O=Acme, Inc/CN=Jane",id-1,\n'
JOE = "joe,ams,ams.example,/C=GR/CN=Joe,id-2,/CN=CA\n"


Import = Callable[..., Ran]


@pytest.fixture
def import_csv(authn: Authn, tmp_path: Path) -> Import:
    def run_import(text: str, *arguments: str) -> Ran:
        (tmp_path / "b.csv").write_text(text)
        return authn.run_command("bindings", "import-csv", "b.csv", *arguments)

    return run_import


def test_lines_become_bindings_and_then_nothing_is_to_do(import_csv: Import, certificates: CertificateService) -> None:
    dry = import_csv(HEAD + JANE + JOE, "--dry-run")
    unchanged = list(certificates.changes)
    first, again = import_csv(HEAD + JANE + JOE), import_csv(HEAD + JANE + JOE)

    assert (dry.stdout, unchanged) == (first.stdout, [])
    assert first.stdout.endswith("2 made\n")
    assert again.stdout.endswith("2 as it is\n")
    subjects = [each["auth_identifier"] for each in certificates.bindings]
    assert subjects == ["CN=Jane,O=Acme\\, Inc,C=GR", "CN=Joe,C=GR"]
    assert certificates.bindings[1]["issuer"] == "CN=CA"
    changed = import_csv(HEAD + JANE.replace("id-1", "id-9"))
    assert "b.csv:2  jane  changed  unique_key" in changed.stdout
    assert certificates.changes[-1][2] == {"unique_key": "id-9"}
    assert "by jane" in import_csv(HEAD + JANE.replace("jane", "janet", 1)).stdout
    assert len(certificates.changes) == 3


@pytest.mark.parametrize(("line", "reason"), [
    ("joe,none,ams.example,/CN=Joe,id-2,\n", "no service type none"),
    ("joe,ams,other.example,/CN=Joe,id-2,\n", "other.example is no host of ams"),
    ("joe,ams,ams.example,nonsense,id-2,\n", "no distinguished name"),
    ("joe,ams,ams.example,/CN=Joe,,\n", "give unique_key"),
    ("j/e,ams,ams.example,/CN=Joe,id-2,\n", "a name is letters"),
    ("jane,ams,ams.example,/CN=Joe,id-2,\n", "have this name"),
    ('joe,ams,ams.example,"/C=GR/O=Acme, Inc/CN=Jane",id-2,\n', "have this subject"),
    ("joe,ams,ams.example,C=GR,O=Acme,CN=Joe,id-2\n", "quotation marks"),
])  # fmt: skip
def test_one_wrong_line_stops_all(import_csv: Import, certificates: CertificateService, line: str, reason: str) -> None:
    ran = import_csv(HEAD + JANE + line)

    assert ran.returncode == Exit.USAGE
    assert reason in ran.stdout
    assert "nothing was changed" in ran.stderr
    assert certificates.changes == []
    for text, said in (("name,nonsense\n", "unknown column"), ("name\n", "is missing"), ("", "is missing")):
        ran = import_csv(text)
        assert (ran.returncode, said in ran.stderr) == (Exit.USAGE, True)


TYPE = {"_id": {"$oid": "1"}, "name": "web", "hosts": ["web.example"], "auth_types": ["x509", "oidc"],
        "auth_method": "api-key", "uuid": "old-web", "type": "web-api"}  # fmt: skip
METHOD = {"service_uuid": "old-web", "port": {"$numberInt": "8444"}, "host": "web.example", "type": "api-key",
          "uuid": "old-m", "access_key": "hush"}  # fmt: skip
BINDING = {"name": "jane", "service_uuid": "old-web", "host": "web.example", "auth_identifier": "CN=Jane,C=GR",
           "uuid": "old-b", "auth_type": "x509", "uniquekey": "id-1"}  # fmt: skip


class OldService:
    def __init__(self, authn: Authn, certificates: CertificateService, folder: Path) -> None:
        self.authn, self.certificates, self._folder = authn, certificates, folder

    def dump(self, *documents: dict[str, Any]) -> str:
        (self._folder / "dump.json").write_text("\n".join(json.dumps(each) for each in documents))
        return "dump.json"

    def bring(self, *documents: dict[str, Any]) -> Ran:
        return self.authn.run_command("import", self.dump(*documents))


@pytest.fixture
def old_service(authn: Authn, certificates: CertificateService, tmp_path: Path) -> OldService:
    return OldService(authn, certificates, tmp_path)


def test_a_database_comes_in_with_its_references_and_again_there_is_nothing_to_do(old_service: OldService) -> None:
    dump = old_service.dump(BINDING, METHOD, TYPE, {"binding_uuid": "old-b", "binding_auth_identifier": "CN=Jane,C=GR"})
    dry = old_service.authn("import", dump, "--dry-run")
    unchanged = list(old_service.certificates.changes)
    first = old_service.authn.run_command("import", dump)
    before = len(old_service.certificates.changes)
    again = old_service.authn.run_command("import", dump)

    assert (first.returncode, again.returncode) == (0, 0)
    assert (dry, unchanged) == (first.stdout, [])
    assert first.stdout.endswith("3 made\n")
    assert again.stdout.endswith("3 as it is\n")
    assert len(old_service.certificates.changes) == before == 3
    web = old_service.certificates.service_types[1]
    assert web["auth_types"] == ["x509"]
    assert old_service.certificates.auth_methods[0]["access_key"] == "hush"
    assert old_service.certificates.auth_methods[0]["port"] == 8444
    assert old_service.certificates.bindings[0]["service_uuid"] == web["uuid"]
    assert f"web was old-web and is {web['uuid']}" in first.stderr
    assert "hush" not in first.stdout + first.stderr


def test_a1_the_user_that_logins_went_by_is_kept_and_the_one_asked_for_is_reported(old_service: OldService) -> None:
    ran = old_service.bring(TYPE, METHOD, BINDING | {"unique_key": "id-2"})
    assert old_service.certificates.bindings[0]["unique_key"] == "id-1"
    assert "user id-2 was asked for and never took effect; id-1 is kept" in ran.stdout


def test_a_binding_of_before_2019_has_its_subject_under_the_old_name_and_no_type(old_service: OldService) -> None:
    before = {name: value for name, value in BINDING.items() if name not in ("auth_identifier", "auth_type")}
    assert old_service.bring(TYPE, METHOD, before | {"dn": "CN=Jane,C=GR"}).stdout.endswith("3 made\n")
    [binding] = old_service.certificates.bindings
    assert (binding["auth_identifier"], binding["auth_type"]) == ("CN=Jane,C=GR", "x509")


def test_a7_a_name_that_no_path_could_hold_is_refused_or_mended(old_service: OldService) -> None:
    dump = old_service.dump(TYPE, METHOD, BINDING | {"name": "jane/at home"})
    refused = old_service.authn.run_command("import", dump)

    assert refused.returncode == Exit.REFUSED
    assert "a name is letters" in refused.stdout
    assert old_service.authn("import", dump, "--mend-names").endswith("1 made, 2 as it is\n")
    assert old_service.certificates.bindings[0]["name"] == "jane-at-home" == mend_name("jane/at home")


def test_a7_a_record_that_cannot_be_is_refused_and_the_others_are_taken(old_service: OldService) -> None:
    odd = TYPE | {"name": "web/odd", "uuid": "old-odd"}
    nobody = TYPE | {"name": "nobody", "uuid": "old-nobody", "auth_types": ["oidc"]}
    dump = old_service.dump(odd, nobody, TYPE, METHOD | {"port": -1}, BINDING)

    planned, ran = (old_service.authn.run_command("import", dump, "--dry-run"),
                    old_service.authn.run_command("import", dump))  # fmt: skip

    assert planned.stdout == ran.stdout
    assert ran.stdout.endswith("2 made, 3 refused\n")
    assert "a name is letters" in ran.stdout
    assert "it has logins by oidc only, which never worked" in ran.stdout
    assert "a port is from 1 to 65535" in ran.stdout
    assert [each["name"] for each in old_service.certificates.bindings] == ["jane"]


def test_duplicates_and_orphans_are_reported_and_none_of_them_taken(old_service: OldService) -> None:
    orphan = BINDING | {"name": "orphan", "service_uuid": "gone"}
    ran = old_service.bring(TYPE, METHOD, METHOD, BINDING, BINDING | {"name": "janet"}, orphan)

    assert ran.returncode == Exit.REFUSED
    assert ran.stdout.count("bindings of the file have this subject on this host") == 2
    assert "2 auth methods are of this host" in ran.stdout
    assert "there is no service type gone" in ran.stdout
    assert old_service.certificates.bindings == old_service.certificates.auth_methods == []


def test_what_was_changed_here_since_is_not_undone(old_service: OldService) -> None:
    dump = old_service.dump(TYPE, METHOD, BINDING)
    old_service.authn("import", dump)
    old_service.certificates.bindings[0]["unique_key"] = "id-5"

    ran = old_service.authn.run_command("import", dump)

    assert ran.returncode == Exit.REFUSED
    assert "is there with other unique_key" in ran.stdout
    assert old_service.certificates.bindings[0]["unique_key"] == "id-5"


@pytest.mark.parametrize("text", ["[{", "[1]", '{"x": 1}', '{"auth_identifier": "CN=x"}', '{"hosts": "x"}',
                                  '{"port": "x", "service_uuid": "u", "host": "h"}'])  # fmt: skip
def test_what_is_no_such_database_is_said_with_its_place_and_an_array_reads_as_lines(tmp_path: Path, text: str) -> None:
    (tmp_path / "array").write_text(json.dumps([TYPE, BINDING], indent=1))
    (tmp_path / "dump").write_text(text)

    found = read_reference([str(tmp_path / "array")])
    assert (len(found.service_types), len(found.bindings)) == (1, 1)
    with pytest.raises(BadDocument, match="dump"):
        read_reference([str(tmp_path / "dump")])
