"""Reads the reference's MongoDB collections whole: thousands of small documents, without an index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ams.core.errors import Unavailable

if TYPE_CHECKING:
    from bson.codec_options import CodecOptions

Document = Mapping[str, Any]

SECONDS = 10  # timeout of the server, unless its URI has another


class Oddity(NamedTuple):
    """Old data that is changed or left out."""

    kind: str
    what: str  # the item, by names that are not secret
    done: str


@dataclass(frozen=True, slots=True)
class Documents:
    """The collections, each in order of creation."""

    projects: Sequence[Document] = ()
    users: Sequence[Document] = ()
    topics: Sequence[Document] = ()
    subscriptions: Sequence[Document] = ()
    schemas: Sequence[Document] = ()
    user_registrations: Sequence[Document] = ()
    daily_topic_msg_count: Sequence[Document] = ()


def read_documents(source: str, database: str) -> Documents:
    """Read AMS's collections from `mongodb://...` or a `mongodump` folder. `Unavailable` names no password."""
    return Documents(**read_collections(source, database, [each.name for each in fields(Documents)]))


def read_collections(source: str, database: str, names: Sequence[str]) -> Mapping[str, Sequence[Document]]:
    """Read collections as `read_documents` does; a dump must have the first of them."""
    from bson.codec_options import CodecOptions, DatetimeConversion

    # Dates as milliseconds: "never" is the year 1, which many calendars cannot hold.
    options: CodecOptions[Any] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
    if not source.startswith(("mongodb://", "mongodb+srv://")):
        return _of_folder(Path(source), database, names, options)

    import pymongo
    from pymongo.errors import PyMongoError

    # In pymongo an argument overrides the URI.
    is_said = "serverselectiontimeoutms=" in source.lower()
    waits: dict[str, Any] = {} if is_said else {"serverSelectionTimeoutMS": SECONDS * 1000}
    try:
        with pymongo.MongoClient[dict[str, Any]](source, **waits) as client:
            found = client.get_database(database, codec_options=options)
            return {name: list(found[name].find().sort("_id", 1)) for name in names}
    except (PyMongoError, ValueError) as error:  # ValueError: invalid URI
        raise Unavailable(f"MongoDB cannot be read: {type(error).__name__}") from None


def _of_folder(
    folder: Path, database: str, names: Sequence[str], options: "CodecOptions[Any]"
) -> Mapping[str, Sequence[Document]]:
    from bson import decode_file_iter
    from bson.errors import InvalidBSON

    place = folder / database if (folder / database).is_dir() else folder
    found: dict[str, Sequence[Document]] = {}
    for name in names:
        file = place / f"{name}.bson"
        if not file.exists():
            continue
        try:
            with file.open("rb") as opened:
                found[name] = sorted(decode_file_iter(opened, options), key=lambda each: str(each.get("_id", "")))
        except (InvalidBSON, OSError) as error:
            raise Unavailable(f"{file} cannot be read: {error}") from None
    if names[0] not in found:
        raise Unavailable(f"{place} holds no dump of the reference: {names[0]}.bson is missing")
    return found
