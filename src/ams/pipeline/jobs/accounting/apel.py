"""APEL text: a first line that says what follows, then records of `Key: value` lines, each closed by a line `%%`.

The last record may lack its `%%`: some senders put it only between records.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting.forms import Form, Row, record
from ams.pipeline.jobs.accounting.kinds import JOB, JOB_SUMMARY, NORMALISED_SUMMARY, SYNC, VM, VM_SUMMARY

FORMS: Final[Mapping[str, Form]] = {
    "APEL-individual-job-message: v0.3": JOB,
    "APEL-individual-job-message: v0.4": JOB,
    "APEL-summary-job-message: v0.2": JOB_SUMMARY,
    "APEL-summary-job-message: v0.3": NORMALISED_SUMMARY,
    "APEL-summary-job-message: v0.4": JOB_SUMMARY,
    "APEL-normalised-summary-message: v0.4": NORMALISED_SUMMARY,
    "APEL-sync-message: v0.1": SYNC,
    "APEL-cloud-message: v0.4": VM,
    "APEL-cloud-summary-message: v0.4": VM_SUMMARY,
}

_END_OF_RECORD: Final = re.compile(r"^%%[ \t]*$", re.MULTILINE)


def records(text: str, now: datetime) -> Iterator[Row | Broken]:
    """Read all records of a text, yielding `Broken` for each that is not one; raises `Broken` for another text."""
    first, _, rest = text.replace("\r\n", "\n").partition("\n")
    form = FORMS.get(first.strip())
    if form is None:
        raise Broken(f"its first line is {first.strip()[:60]!r}, which is no kind of record we know")
    for number, block in enumerate(_END_OF_RECORD.split(rest), 1):
        if not block or block.isspace():
            continue
        try:
            yield record(form, _pairs(block), now)
        except Broken as error:
            yield Broken(f"record {number}: {error}")


def _pairs(block: str) -> Iterator[tuple[str, str]]:
    for line in block.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            yield name.strip(), value.strip()
        elif name and not name.isspace():
            raise Broken(f"a line without a colon: {name[:20]!r}")
