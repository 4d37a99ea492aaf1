import pytest
import typer

from ams.cli.exits import Exit, PipeClosed, Usage, exit_code, line
from ams.client import errors
from ams.core.errors import BadDocument, BadSettings, Unusable
from ams.pipeline import errors as pipeline
from ams.tables.errors import WrongTable


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidInput("no"), 1),
        (errors.TooLarge("no"), 1),
        (errors.AckTimeout("ack timeout"), 1),
        (Unusable("port taken"), 1),
        (BadSettings("no port"), 2),
        (BadDocument("file.yaml:1: no"), 2),
        (pipeline.Unavailable("no Java"), 1),
        (pipeline.WrongOption("size", "no"), 2),
        (pipeline.WrongDefinition("file.yaml", []), 2),
        (pipeline.ChangedDefinition("no"), 5),
        (pipeline.WrongTable("no"), 5),
        (WrongTable("no"), 5),
        (pipeline.Busy("no"), 5),
        (pipeline.DataLoss("gone"), 1),
        (pipeline.Failed("no"), 1),
        (Usage("no project"), 2),
        (errors.Unusable("no CA file"), 2),
        (typer.Abort(), 1),
        (errors.NotAuthenticated("Unauthorized"), 3),
        (errors.NotAllowed("forbidden"), 3),
        (errors.NotFound("no"), 4),
        (errors.AlreadyExists("no"), 5),
        (errors.Conflict("no"), 5),
        (errors.Unreachable("no"), 6),
        (errors.NotAms("no"), 6),
        (errors.Unavailable("Backend Error"), 7),
        (errors.Overloaded("busy"), 7),
        (ZeroDivisionError("division by zero"), 70),
        (PipeClosed(), 141),
    ],
)
def test_every_kind_of_error_has_its_code(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_an_error_is_one_line() -> None:
    assert line(errors.NotFound("Topic\ndoesn't  exist")) == "Topic doesn't exist"


def test_a_fault_says_how_to_see_where() -> None:
    assert line(ValueError("boom")) == "unexpected ValueError: boom (a fault in ams; AMS_DEBUG=1 shows where)"


def test_a_refused_token_says_what_may_be_wrong() -> None:
    assert line(errors.NotAuthenticated("Unauthorized")).startswith("Unauthorized (the token")


def test_the_codes_are_those_of_the_reference_page() -> None:
    with open("docs/reference/cli.md", encoding="utf-8") as page:
        text = page.read()

    for code in Exit:
        assert f"| {code.value} |" in text, code.name
