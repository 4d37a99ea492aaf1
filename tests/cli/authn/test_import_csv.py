from pathlib import Path

import pytest

from ams.cli.exits import Exit
from tests.cli.authn.conftest import Authn
from tests.support.certificate_service import CertificateService
from tests.support.commands import Ran

HEAD = "name,service_type,host,auth_identifier,unique_key,issuer\n"
JANE = 'jane,ams,ams.example,"/C=GR/O=Acme, Inc/CN=Jane",id-1,\n'
JOE = "joe,ams,ams.example,/C=GR/CN=Joe,id-2,/CN=CA\n"


class Imported:
    """Imports a text as a file."""

    def __init__(self, authn: Authn, certificates: CertificateService, folder: Path) -> None:
        self._authn = authn
        self.certificates = certificates
        self._folder = folder

    def __call__(self, text: str, *arguments: str) -> Ran:
        (self._folder / "b.csv").write_text(text)
        return self._authn.run("bindings", "import-csv", "b.csv", *arguments)


@pytest.fixture
def imported(authn: Authn, certificates: CertificateService, tmp_path: Path) -> Imported:
    return Imported(authn, certificates, tmp_path)


def test_lines_become_bindings_and_again_there_is_nothing_to_do(imported: Imported) -> None:
    dry = imported(HEAD + JANE + JOE, "--dry-run")
    unchanged = list(imported.certificates.changes)
    first, again = imported(HEAD + JANE + JOE), imported(HEAD + JANE + JOE)

    assert (dry.stdout, unchanged) == (first.stdout, [])
    assert first.stdout.endswith("2 made\n")
    assert again.stdout.endswith("2 as it is\n")
    assert len(imported.certificates.changes) == 2
    assert [each["auth_identifier"] for each in imported.certificates.bindings] == [
        "CN=Jane,O=Acme\\, Inc,C=GR",
        "CN=Joe,C=GR",
    ]
    assert imported.certificates.bindings[1]["issuer"] == "CN=CA"


def test_a_line_that_says_something_else_changes_its_binding(imported: Imported) -> None:
    imported(HEAD + JANE)

    ran = imported(HEAD + JANE.replace("id-1", "id-9"))

    assert "b.csv:2  jane  changed  unique_key" in ran.stdout
    assert imported.certificates.changes[-1][2] == {"unique_key": "id-9"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("joe,none,ams.example,/CN=Joe,id-2,\n", "no service type none"),
        ("joe,ams,other.example,/CN=Joe,id-2,\n", "other.example is no host of ams"),
        ("joe,ams,ams.example,nonsense,id-2,\n", "no distinguished name"),
        ("joe,ams,ams.example,/CN=Joe,,\n", "give unique_key"),
        ("joe,ams,,/CN=Joe,id-2,\n", "no host"),
        ("j/e,ams,ams.example,/CN=Joe,id-2,\n", "a name is letters"),
        ("jane,ams,ams.example,/CN=Joe,id-2,\n", "have this name"),
        ('joe,ams,ams.example,"/C=GR/O=Acme, Inc/CN=Jane",id-2,\n', "have this subject"),
        ("joe,ams,ams.example,C=GR,O=Acme,CN=Joe,id-2\n", "quotation marks"),
    ],
)
def test_one_wrong_line_is_told_and_no_line_is_sent(imported: Imported, line: str, reason: str) -> None:
    ran = imported(HEAD + JANE + line)

    assert ran.returncode == Exit.USAGE
    assert reason in ran.stdout
    assert "nothing was changed" in ran.stderr
    assert imported.certificates.changes == []


def test_a_subject_that_is_bound_under_another_name_is_told(imported: Imported) -> None:
    imported(HEAD + JANE)

    assert "by jane" in imported(HEAD + JANE.replace("jane", "janet", 1)).stdout
    assert len(imported.certificates.changes) == 1


@pytest.mark.parametrize(
    ("text", "said"), [("name,nonsense\n", "unknown column"), ("name\n", "is missing"), ("", "is missing")]
)
def test_a_file_without_the_columns_is_refused(imported: Imported, text: str, said: str) -> None:
    ran = imported(text)

    assert ran.returncode == Exit.USAGE
    assert said in ran.stderr
