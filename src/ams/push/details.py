"""Details: what is said of a failure. One line, short, and without the secrets of the target."""

import html
import re
from collections.abc import Iterator, Sequence

import msgspec

from ams.core.messages import decoded_data, parse
from ams.core.push_config import MATTERMOST
from ams.push.delivery import PREFIX
from ams.push.upstream import Pulled, Target

MAX_BYTES = 300  # of a detail, as UTF-8
HIDDEN = "***"
_LEAST_PART = 8  # characters of a part of a value that is hidden by itself; shorter ones are words
_LEAST_BEGINNING = 4
"""Characters of the beginning of a secret, at the end of a text that was cut, that are hidden too."""


_PARTS = re.compile("[/?&=#]")
"""What stands between the parts of a URL; the first of them is the host."""


class Details:
    """Words failures of one target."""

    def __init__(self, target: Target) -> None:
        self._secrets = _secrets(target)
        self._is_mattermost = target.config.type == MATTERMOST
        self._has_token = target.config.google is not None

    def answer(self, text: str) -> str:
        """Return what an endpoint answered as it may be shown; of a page its title and text."""
        said = _of_mattermost(text) if self._is_mattermost else text
        return self.detail(_of_page(said) if said.lstrip().startswith("<") else said)

    def detail(self, text: str) -> str:
        """Return a text as it may be shown."""
        line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
        if self._has_token:
            line = _TOKEN.sub(HIDDEN, line)
        for secret in self._secrets:
            line = line.replace(secret, HIDDEN)
        for secret in self._secrets:
            line = _without_beginning(line, secret)
        return cut(line, MAX_BYTES)


def cut(text: str, most: int) -> str:
    """Return the beginning of a text, at most so many bytes of UTF-8."""
    return text.encode()[:most].decode("utf-8", "ignore")


def repeats(text: str, messages: Sequence[Pulled]) -> bool:
    """Return whether a text has anything in it of what these messages carry, so that no log may have it.

    That is eleven letters and digits in a row of a message's data, as sent or decoded, of its ordering key, or of a
    value of its attributes; of a shorter one all of it. What stands between letters, as spaces and quotes, counts for
    nothing.
    """
    said = _letters(text)
    pieces = [said[at : at + _PIECE] for at in range(0, len(said) - _PIECE + 1, _STEP)]
    return any(
        value in said if len(value) < _PIECE + _STEP else any(piece in value for piece in pieces)
        for value in map(_letters, _carried(messages))
        if value
    )


_PIECE, _STEP = 8, 4
"""Characters that are looked for, and from one of them to the next: of eleven in a row there are always eight."""


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _carried(messages: Sequence[Pulled]) -> Iterator[str]:
    for each in messages:
        message = parse(each.fragment)
        yield message.data
        yield message.ordering_key
        yield from (message.attributes or {}).values()
        try:
            yield decoded_data(message.data).decode(errors="ignore")
        except ValueError:  # it is no base64
            continue


_TOKEN = re.compile(r"\beyJ[\w.-]*")
"""A JWT, or its beginning where it was cut: it is made anew all the time, so it is known by its form."""
_UNSEEN = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|$)|<!--.*?(?:-->|$)", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<title\b[^>]*>([^<]*)", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>?")


def _of_page(text: str) -> str:
    """Return what people see of a page of HTML, or of its beginning; what its title says already is said once."""
    seen = _UNSEEN.sub("<>", text)
    found = _TITLE.search(seen)
    title = found[1].strip() if found else ""
    rest = [each.strip() for each in _TAG.split(_TITLE.sub("", seen))]
    return html.unescape(" ".join(each for each in (title, *(each for each in rest if each not in title)) if each))


class _MattermostError(msgspec.Struct):
    message: str
    detailed_error: str = ""


def _of_mattermost(text: str) -> str:
    """Return what Mattermost says in an answer (push contract 11); any other text as it is."""
    try:
        error = msgspec.json.decode(text, type=_MattermostError)
    except (msgspec.DecodeError, UnicodeError):
        return text
    return f"{error.message}.{error.detailed_error}" if error.detailed_error else error.message


def _secrets(target: Target) -> list[str]:
    config = target.config
    whole = [config.header_value, config.verification_hash, config.mattermost_url, *target.secrets]
    # A value as `Bearer X` is also given away by X, the URL of a hook by a part of its path, a secret by its base64.
    parts = [*config.header_value.split(), *_PARTS.split(config.mattermost_url.partition("://")[2])[1:]]
    parts += [each.removeprefix(PREFIX) for each in target.secrets]
    hidden = {each for each in whole if each} | {each for each in parts if len(each) >= _LEAST_PART}
    return sorted(hidden, key=len, reverse=True)


def _without_beginning(line: str, secret: str) -> str:
    """Return a line that does not end with the beginning of a secret, as when it was cut within one."""
    for length in range(min(len(secret) - 1, len(line)), _LEAST_BEGINNING - 1, -1):
        if line.endswith(secret[:length]):
            return line[:-length] + HIDDEN
    return line
