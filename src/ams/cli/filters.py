"""Which messages a command shows: by their attributes, and by what their JSON holds."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from ams.cli.arguments import option
from ams.cli.command import OptionSet
from ams.cli.exits import Usage
from ams.client.wire import PulledMessage
from ams.core import filters
from ams.core.errors import InvalidInput

Test = Callable[[PulledMessage], bool]


@dataclass(frozen=True, slots=True)
class MessageFilter(OptionSet):
    """What a message must be to be shown; without any option each is."""

    filter: Annotated[
        str,
        option("Only messages with such attributes: 'attributes.site = \"ATHENS\"'.", "--filter", metavar="EXPR"),
    ] = ""
    json: Annotated[
        str,
        option(
            "Only messages whose JSON has something at a path, '$.readings[0]', or is so: \"@.site == 'ATHENS'\".",
            "--json",
            metavar="JSONPATH",
        ),
    ] = ""

    def test(self) -> Test:
        """Return what tells whether a message is shown. Raises `Usage` for what cannot be read."""
        tests = [*([_by_attributes(self.filter)] if self.filter else []), *([_by_json(self.json)] if self.json else [])]
        return lambda message: all(each(message) for each in tests)


def _by_attributes(text: str) -> Test:
    try:
        read = filters.parse(text)
    except InvalidInput as error:
        raise Usage(f"--filter: {error.message}") from None
    return lambda message: read.matches(message.attributes)


def _by_json(text: str) -> Test:
    """Read a query of RFC 9535, or the condition of one: what stands in `$[?(...)]`, asked of the whole payload."""
    import jsonpath  # commands that show no messages do not wait for it

    is_query = text.lstrip().startswith("$")
    try:
        query = jsonpath.JSONPathEnvironment(strict=True).compile(text.strip() if is_query else f"$[?({text})]")
    except jsonpath.JSONPathError as error:
        raise Usage(f"--json: {str(error).splitlines()[0]}") from None

    def matches(message: PulledMessage) -> bool:
        try:
            payload: Any = json.loads(message.payload())
        except (ValueError, RecursionError):
            return False  # no JSON
        if is_query and not isinstance(payload, dict | list):
            return text.strip() == "$"
        return query.match(payload if is_query else [payload]) is not None

    return matches
