"""Reads bindings from CSV: a line of column names, then a binding a line (docs/reference/cli.md)."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ams.cli.authn.bulk import Wanted
from ams.client.errors import InvalidInput, NotFound
from ams.client.wire import authn
from ams.core.distinguished_names import normalised
from ams.core.errors import BadDocument

NEEDED = ("name", "service_type", "host", "auth_identifier")
COLUMNS = (*NEEDED, "unique_key", "user", "auth_type", "issuer")

UuidOf = Callable[[str], str]
"""Returns the uuid of an AMS user by name; raises a `ClientError`."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A line that cannot be read."""

    place: str
    name: str
    reason: str


def read_bindings(path: str, uuid_of: UuidOf) -> Iterator[Wanted | Wrong]:
    """Yield what each line says; raise `BadDocument` when the file, or its first line, cannot be read at all.

    Subjects and issuers may be spelled in any way, and come out in normal form.
    """
    uuids: dict[str, str] = {}

    def known(user: str) -> str:
        if user not in uuids:
            uuids[user] = uuid_of(user)
        return uuids[user]

    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True, skipinitialspace=True)
            _check_columns(path, reader.fieldnames or ())
            for row in reader:
                yield _read(f"{path}:{reader.line_num}", row, known)
    except OSError as error:
        raise BadDocument(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadDocument(f"{path} is not CSV in UTF-8: {getattr(error, 'reason', None) or error}") from None


def _check_columns(path: str, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise BadDocument(f"{path}:1: unknown column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise BadDocument(f"{path}:1: the column {missing[0]} is missing")


def _read(place: str, row: Mapping[str | None, object], uuid_of: UuidOf) -> Wanted | Wrong:
    said = {name: str(value or "").strip() for name, value in row.items() if name is not None}
    name = said["name"]
    if None in row:
        return Wrong(place, name, "more values than columns: a subject with commas stands in quotation marks")
    empty = [column for column in NEEDED if not said[column]]
    if empty:
        return Wrong(place, name, f"no {empty[0]}")
    user, unique_key = said.get("user", ""), said.get("unique_key", "")
    if bool(user) == bool(unique_key):
        return Wrong(place, name, "give unique_key, or the user of AMS whose it is, one of them")
    try:
        subject, issuer = normalised(said["auth_identifier"]), said.get("issuer")
        issuer = normalised(issuer) if issuer else issuer
    except ValueError as error:
        return Wrong(place, name, str(error))
    try:
        unique_key = unique_key or uuid_of(user)
    except NotFound:
        return Wrong(place, name, f"AMS has no user {user}")
    except InvalidInput as error:
        return Wrong(place, name, error.message)
    return Wanted(
        place=place,
        name=name,
        service_type=said["service_type"],
        host=said["host"],
        auth_identifier=subject,
        unique_key=unique_key,
        auth_type=said.get("auth_type") or authn.X509,
        issuer=issuer,
    )
