"""`ams migrate`: from the reference implementation to here."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from ams.cli.arguments import Output, argument, option
from ams.cli.command import Group, OptionSet, Session, with_options
from ams.cli.exits import Exit
from ams.cli.extras import need
from ams.cli.installation import Progress
from ams.cli.output import Format, columns, fields, note, printable, write
from ams.cli.shadow import shadow

if TYPE_CHECKING:
    from ams.migrate.verifying import Verified
    from ams.migrate.writing import Plan

app = Group(
    "ams migrate plan --mongodb mongodb://db.example:27017 --kafka kafka.example:9092",
    "ams migrate export all.jsonl.gz --mongodb mongodb://db.example:27017 --kafka kafka.example:9092",
)
app.does()(shadow)


@dataclass(frozen=True, slots=True)
class Source(OptionSet):
    """Where the reference keeps what it has."""

    mongodb: Annotated[
        str,
        option(
            "Where its MongoDB is, or a folder that mongodump made.",
            "--mongodb",
            metavar="URI",
            envvar="AMS_MIGRATE_MONGODB",
            show_default=False,
        ),
    ] = field(repr=False)
    """It may hold a password."""
    kafka: Annotated[str, option("Its brokers, HOST:PORT,HOST:PORT.", "--kafka", envvar="AMS_MIGRATE_KAFKA")]
    database: Annotated[str, option("Its database there (store_db of its settings).", "--database")] = "argo_msg"


Strict = Annotated[bool, option("End with an error if anything does not go over as it is.", "--strict")]


@app.command()
@with_options
def plan(source: Source, *, strict: Strict = False, output: Output = Format.TABLE) -> None:
    """Say what there is, and what of it does not go over as it is. Nothing is changed."""
    asyncio.run(_migrate(source, "", strict, output))


@app.command()
@with_options
def export(
    file: Annotated[str, argument("FILE", "New file; .gz compresses it, - is stdout.")],
    source: Source,
    *,
    strict: Strict = False,
    output: Output = Format.TABLE,
) -> None:
    """Write all that the reference holds into a file that `ams import` takes. Nothing is changed.

    The file holds every token in clear, for its owner only (mode 0600).
    """
    asyncio.run(_migrate(source, file, strict, output))


@app.command()
@with_options
def verify(session: Session, source: Source) -> None:
    """Compare every token, message and position with what the service has now.

    Ask with the token of a service_admin. The exit code is 1 when anything differs.
    """
    found = asyncio.run(_verified(session, source))
    counts = {name: f"{count:,}" for name, count in found._asdict().items() if name != "differences"}
    text = fields({**counts, "different": str(len(found.differences))})
    if found.differences:
        rows = [tuple(map(printable, each)) for each in found.differences]
        text = f"{text}\n\n{columns(('WHAT', 'OLD', 'NEW'), rows)}"
    document = {**found._asdict(), "differences": [each._asdict() for each in found.differences]}
    write(session.output, document, text)
    if found.differences:
        raise typer.Exit(Exit.REFUSED)


async def _verified(session: Session, source: Source) -> "Verified":
    need("migrate")
    from ams.migrate.documents import read_documents
    from ams.migrate.records import Kafka
    from ams.migrate.verifying import verify
    from ams.migrate.writing import plan as planned

    async with Kafka(source.kafka) as kafka:
        found = planned(read_documents(source.mongodb, source.database), kafka)
        return await verify(found.found, kafka, session.client, session.ca)


async def _migrate(source: Source, file: str, strict: bool, output: Format) -> None:
    need("migrate")
    from ams.migrate.documents import read_documents
    from ams.migrate.records import Kafka
    from ams.migrate.writing import plan as planned
    from ams.migrate.writing import write as written

    async with Kafka(source.kafka) as kafka:
        found = planned(read_documents(source.mongodb, source.database), kafka)
        if strict and found.found.oddities:
            _tell(found, {**found.counts, "message": found.messages}, output)
            raise typer.Exit(Exit.REFUSED)
        if file:
            counts = await written(found, kafka, file, Progress("written").tell)
        else:
            counts = {**found.counts, "message": found.messages}
    if file == "-":
        note(f"{counts['message']:,} messages, {len(found.found.oddities)} things not as they were: see the plan")
        return
    _tell(found, counts, output)
    if file:
        note(f"{file} is whole. Every user's token is in it; ams import {file} --data DATA takes it.")


def _tell(plan: "Plan", counts: Mapping[str, int], output: Format) -> None:
    odd = plan.found.oddities
    kinds = Counter(each.kind for each in odd)
    text = fields({**{name: f"{count:,}" for name, count in counts.items()}, "not as it was": f"{len(odd):,}"})
    if odd:
        rows = [(each.kind, printable(each.what), each.done) for each in odd]
        text = f"{text}\n\n{columns(('WHAT', 'WHICH', 'WHAT BECOMES OF IT'), rows)}"
    document = {"counts": dict(counts), "oddities": dict(kinds), "details": [each._asdict() for each in odd]}
    write(output, document, text)
