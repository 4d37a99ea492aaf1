import pytest
import typer

from ams.cli.exits import Exit, PipeClosed, Usage, exit_code, line
from ams.client import errors
from ams.core.errors import BadDocument, BadSettings, Unusable
from ams.pipeline import errors as pipeline
from ams.tables.errors import WrongTable

CODES: dict[int, list[Exception]] = {
    1: [
        errors.InvalidInput("no"), errors.TooLarge("no"), errors.AckTimeout("ack timeout"), Unusable("port taken"),
        pipeline.Unavailable("no Java"), pipeline.DataLoss("gone"), pipeline.Failed("no"), typer.Abort(),
    ],
    2: [
        BadSettings("no port"), BadDocument("file.yaml:1: no"), pipeline.WrongOption("size", "no"),
        pipeline.WrongDefinition("file.yaml", []), Usage("no project"), errors.Unusable("no CA file"),
    ],
    3: [errors.NotAuthenticated("Unauthorized"), errors.NotAllowed("forbidden")],
    4: [errors.NotFound("no")],
    5: [
        pipeline.ChangedDefinition("no"), pipeline.WrongTable("no"), WrongTable("no"), pipeline.Busy("no"),
        errors.AlreadyExists("no"), errors.Conflict("no"),
    ],
    6: [errors.Unreachable("no"), errors.NotAms("no")],
    7: [errors.Unavailable("Backend Error"), errors.Overloaded("busy")],
    70: [ZeroDivisionError("division by zero")],
    141: [PipeClosed()],
}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_every_kind_of_error_has_its_code(code: int) -> None:
    assert {repr(error): exit_code(error) for error in CODES[code]} == {repr(error): code for error in CODES[code]}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.NotFound("Topic\ndoesn't  exist"), "Topic doesn't exist"),
        (ValueError("boom"), "unexpected ValueError: boom (a fault in ams; AMS_DEBUG=1 shows where)"),
        (errors.NotAuthenticated("Unauthorized"), "Unauthorized (the token"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(error: Exception, said: str) -> None:
    assert line(error).startswith(said)
    assert "\n" not in line(error)


def test_the_codes_are_those_of_the_reference_page() -> None:
    with open("docs/reference/cli.md", encoding="utf-8") as page:
        text = page.read()

    for code in Exit:
        assert f"| {code.value} |" in text, code.name
