from collections.abc import Callable
from pathlib import Path

import pytest

from ams.cli.exits import Exit
from tests.cli.authn.conftest import Authn
from tests.support.certificate_service import CertificateService
from tests.support.commands import Ran

HEAD = "name,service_type,host,auth_identifier,unique_key,issuer\n"
JANE = 'jane,ams,ams.example,"/C=GR/O=Acme, Inc/CN=Jane",id-1,\n'
JOE = "joe,ams,ams.example,/C=GR/CN=Joe,id-2,/CN=CA\n"
Imported = Callable[..., Ran]


@pytest.fixture
def imported(authn: Authn, tmp_path: Path) -> Imported:
    def run(text: str, *arguments: str) -> Ran:
        (tmp_path / "b.csv").write_text(text)
        return authn.run("bindings", "import-csv", "b.csv", *arguments)

    return run


def test_lines_become_bindings_and_again_there_is_nothing_to_do(
    imported: Imported, certificates: CertificateService
) -> None:
    first, again = imported(HEAD + JANE + JOE), imported(HEAD + JANE + JOE)

    assert first.stdout.endswith("2 made\n")
    assert again.stdout.endswith("2 as it is\n")
    assert len(certificates.changes) == 2
    assert [each["auth_identifier"] for each in certificates.bindings] == ["CN=Jane,O=Acme\\, Inc,C=GR", "CN=Joe,C=GR"]
    assert certificates.bindings[1]["issuer"] == "CN=CA"


def test_a_line_that_says_something_else_changes_its_binding(
    imported: Imported, certificates: CertificateService
) -> None:
    imported(HEAD + JANE)

    ran = imported(HEAD + JANE.replace("id-1", "id-9"))

    assert "b.csv:2  jane  changed  unique_key" in ran.stdout
    assert certificates.changes[-1][2] == {"unique_key": "id-9"}


def test_a_dry_run_changes_nothing(imported: Imported, certificates: CertificateService) -> None:
    assert imported(HEAD + JANE, "--dry-run").stdout.endswith("1 made\n")
    assert certificates.changes == []


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
def test_one_wrong_line_is_told_and_no_line_is_sent(
    imported: Imported,
    certificates: CertificateService,
    line: str,
    reason: str,
) -> None:
    ran = imported(HEAD + JANE + line)

    assert ran.returncode == Exit.USAGE
    assert reason in ran.stdout
    assert "nothing was changed" in ran.stderr
    assert certificates.changes == []


def test_a_subject_that_is_bound_under_another_name_is_told(
    imported: Imported, certificates: CertificateService
) -> None:
    imported(HEAD + JANE)

    assert "by jane" in imported(HEAD + JANE.replace("jane", "janet", 1)).stdout
    assert len(certificates.changes) == 1


@pytest.mark.parametrize(
    ("text", "said"), [("name,nonsense\n", "unknown column"), ("name\n", "is missing"), ("", "is missing")]
)
def test_a_file_without_the_columns_is_refused(imported: Imported, text: str, said: str) -> None:
    ran = imported(text)

    assert ran.returncode == Exit.USAGE
    assert said in ran.stderr
