"""The file of issuers."""

import re
from pathlib import Path

import pytest

from ams.core import issuer
from ams.core.errors import BadSettings
from ams.core.issuer import Issuer, RoleRule, read_issuers
from ams.core.names import IssuerName

ONE = '[[issuer]]\nname = "a"\nurl = "https://a.example"\nclients = ["app"]\n'


def written(folder: Path, text: str) -> str:
    path = folder / "issuers.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return str(path)


def test_a_file_has_issuers_and_what_their_entitlements_mean(tmp_path: Path) -> None:
    example = "\n".join(line[4:] for line in (issuer.__doc__ or "").splitlines() if line.startswith("    "))

    assert read_issuers(written(tmp_path, f"{example}\n{ONE}")) == (
        Issuer(
            IssuerName("egi"),
            "https://aai.egi.eu/auth/realms/egi",
            audiences=("ams",),
            create_users=True,
            roles=(RoleRule("urn:mace:egi.eu:group:monitoring.egi.eu:role=publisher", "MONITORING", ("publisher",)),),
        ),
        Issuer(IssuerName("a"), "https://a.example", clients=("app",)),
    )


def test_an_empty_file_has_none(tmp_path: Path) -> None:
    assert read_issuers(written(tmp_path, "# none yet\n")) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[issuer]", "Expected"),
        ("\udcff", "no text in UTF-8"),
        ("issuer = 1", r"it has tables \[\[issuer\]\], and nothing else"),
        ("issuer = [1]", r"it has tables \[\[issuer\]\]"),
        ("[[issuers]]", r"it has tables \[\[issuer\]\]"),
        ("[[issuer]]\nurl = 'x'", "issuer 1: An issuer cannot be read: Object missing required field `name`"),
        (ONE + "[[issuer]]\nname = 'b'\nurl = 'x'", "issuer b: An issuer's url is https://HOST"),
        (ONE + "audience = 'x'", "issuer a: An issuer has no 'audience'"),
        (ONE + ONE, "Two issuers are named a"),
        ("a = " + "[" * 5000, ""),
    ],
)
def test_what_cannot_be_in_the_file_stops_the_start(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)

    with pytest.raises(BadSettings, match=f"^issuers_file {re.escape(path)}: .*{message}"):
        read_issuers(path)


def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="No such file"):
        read_issuers(str(tmp_path / "none.toml"))
