"""What all requests and answers have in common: how names are spelled, and what is left out."""

from typing import Annotated, ClassVar

import msgspec


class Object(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object whose fields are spelled with underscores on the wire too.

    A field without a default is in every answer; the others are left out when they have their default. Dates are texts
    in UTC, `2024-03-05T10:20:30Z`. An answer never says null: what is None is left out.
    """


class ObjectWithSecret(Object, frozen=True):
    """An object whose `repr` has the fields that `shown` names, and no secret."""

    shown: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)!r}" for name in self.shown)
        return f"{type(self).__name__}({', '.join(fields)})"


class CamelObject(Object, frozen=True, rename="camel"):
    """An object whose fields are spelled `likeThis` on the wire."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The body of a request. Absent and null are the same, so every field is optional.

    The client writes it without what it does not set. The service reads it exactly at first: a field of another
    spelling or an unknown one fails that and leads to the patient reading (`ams.http.bodies`).
    """


class CamelRequest(Request, frozen=True, rename="camel"):
    """A request whose fields are spelled `likeThis` on the wire."""


class ListPage(CamelObject, frozen=True, kw_only=True):
    """What every page of a list says (contract 4): an empty token on the last page, the size of the whole list."""

    next_page_token: str
    total_size: int


class Nothing(Object, frozen=True):
    """An object that says nothing."""


ALWAYS = msgspec.Meta(extra_json_schema={"required": True})
"""Of a field that AMS always sends although it has a default: the original service leaves it out, or an older AMS."""
Text = Annotated[str, ALWAYS]
