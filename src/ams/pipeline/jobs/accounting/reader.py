"""From the data of a message to the records in it, whatever envelope and syntax they come in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting import apel, json_records, xml_records
from ams.pipeline.jobs.accounting.envelope import Trust, opened
from ams.pipeline.jobs.accounting.forms import Row


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads messages; what cannot be read is `Broken`, raised for a message and yielded for records of one.

    A message is set aside once, however many of its records are broken: it is kept whole, and may be a megabyte.
    """

    trust: Trust = Trust()
    signed_only: bool = False
    """Whether what came without a signature is refused."""
    now: datetime | None = None
    """The time that ends are compared with; None: when the message is read."""

    def __call__(self, data: bytes, _attributes: Mapping[str, str]) -> Iterator[Row | Broken]:
        """Read the data of one message."""
        text, signer = opened(data, self.trust)
        if self.signed_only and not signer:
            raise Broken("not signed")
        broken: list[Broken] = []
        for row in _records(text.strip(), self.now or datetime.now(UTC)):
            if isinstance(row, Broken):
                broken.append(row)
            else:
                row["signer"] = signer
                yield row
        if broken:
            more = f"; and {len(broken) - 1} more of this message" if len(broken) > 1 else ""
            yield Broken(f"{broken[0]}{more}")


def _records(text: bytes, now: datetime) -> Iterator[Row | Broken]:
    if text.startswith(b"<"):
        return xml_records.records(text, now)
    if text.startswith((b"{", b"[")):
        return json_records.records(text, now)
    try:
        return apel.records(text.decode(), now)
    except UnicodeDecodeError as error:
        raise Broken("is not UTF-8") from error
