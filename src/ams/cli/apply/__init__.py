"""`ams apply`: makes the service hold what files declare (docs/reference/apply.md)."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from ams.cli.apply.document import read_documents
from ams.cli.apply.plan import Change, Step, plan
from ams.cli.apply.resources import Kind
from ams.cli.apply.running import carry_out, tokens_to
from ams.cli.apply.state import read_existing
from ams.cli.command import Session, with_session
from ams.cli.exits import Usage
from ams.cli.output import document, emit, note, printable

Files = Annotated[
    list[str], typer.Option("--file", "-f", metavar="FILE", help="What to declare; - is standard input; repeatable.")
]
Planned = Callable[[], Sequence[Step]]
Tokens = Annotated[str | None, typer.Option(metavar="FILE", help="Add tokens of new users to it; yours alone.")]


@with_session
def apply(
    session: Session,
    file: Files,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Remove from declared projects what is not declared.")] = False,
    tokens: Tokens = None,
    show_tokens: Annotated[bool, typer.Option("--show-tokens", help="Write tokens of new users to stdout.")] = False,
) -> None:
    """Make the service hold what files declare: shows what it would do, asks, and does it.

    Applied again, there is nothing to do.
    """
    declared = read_documents(file)

    def planned() -> list[Step]:
        return plan(declared, read_existing(declared, session.call), prune=prune)

    steps = planned()
    if not session.for_programs:
        emit("\n".join(lines(steps)) or "nothing to do")
    made: dict[str, str] = {}
    if steps and not dry_run:
        _confirm(session, yes=yes)
        made = _carry_out(session, steps, tokens, planned)
    if session.for_programs:
        result = {"steps": [_as_object(step) for step in steps], "applied": not dry_run}
        emit(document(result | ({"tokens": made} if show_tokens else {})))
    elif show_tokens:
        for user, token in made.items():
            emit(f"{user} {token}")
    if made and not (tokens or show_tokens):
        remedy = "a service_admin gives new ones: ams admin tokens refresh USER"
        note(f"tokens of {', '.join(made)} were not kept; {remedy}")


def lines(steps: Sequence[Step]) -> Iterator[str]:
    """Yield a plan as people read it."""
    for step in steps:
        said = ", ".join(f"{name} {_short(value)}" for name, value in step.fields.items())
        yield printable(f"{step.change} {step.key}" + (f": {said}" if said else ""))


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{...}" if value else "none"
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return str(value) if value != "" else "none"


def _confirm(session: Session, *, yes: bool) -> None:
    if yes:
        return
    if session.for_programs or not sys.stdin.isatty():
        raise Usage("there is something to do: give --yes to do it, or --dry-run to see it only")
    typer.confirm("do it?", abort=True, err=True)


def _carry_out(session: Session, steps: Sequence[Step], path: str | None, planned: Planned) -> dict[str, str]:
    with tokens_to(path if any(_may_make_a_user(step) for step in steps) else None) as tokens:
        carry_out(steps, session.call, tokens, planned)
    return tokens.made


def _may_make_a_user(step: Step) -> bool:
    return step.change is Change.ADD and step.key.kind in (Kind.USER, Kind.MEMBER)


def _as_object(step: Step) -> dict[str, Any]:
    key = step.key
    return {"change": step.change, "kind": key.kind, "project": key.project, "name": key.name, "fields": step.fields}
