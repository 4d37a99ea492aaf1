"""What the reference keeps in MongoDB, read whole: it is thousands of small documents, without an index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ams.core.errors import Unavailable

Document = Mapping[str, Any]

COLLECTIONS = (
    "projects",
    "users",
    "topics",
    "subscriptions",
    "schemas",
    "user_registrations",
    "daily_topic_msg_count",
)
SECONDS = 10
"""Until a server that does not answer is given up."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The collections, each in the order in which its documents were made."""

    projects: Sequence[Document] = ()
    users: Sequence[Document] = ()
    topics: Sequence[Document] = ()
    subscriptions: Sequence[Document] = ()
    schemas: Sequence[Document] = ()
    user_registrations: Sequence[Document] = ()
    daily_topic_msg_count: Sequence[Document] = field(default=())


def read_documents(uri: str, database: str) -> Documents:
    """Read all collections of a database at `mongodb://...`. Raises `Unavailable`, which never names a password."""
    import pymongo
    from bson.codec_options import CodecOptions, DatetimeConversion
    from pymongo.errors import PyMongoError

    # Dates as milliseconds: "never" is the year 1, which many calendars cannot hold.
    options: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
    try:
        with pymongo.MongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=SECONDS * 1000) as client:
            found = client.get_database(database, codec_options=options)
            return Documents(**{name: list(found[name].find().sort("_id", 1)) for name in COLLECTIONS})
    except PyMongoError as error:
        raise Unavailable(f"MongoDB cannot be read: {type(error).__name__}") from None
