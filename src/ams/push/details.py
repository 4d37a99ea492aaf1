"""Details: what is said of a failure. One line, short, and without the secrets of the target, whoever repeats them."""

import re

import msgspec

from ams.push.signing import PREFIX
from ams.push.target import Target
from ams.push_config import MATTERMOST

MAX_BYTES = 2048
"""Of a detail, as UTF-8."""
HIDDEN = "***"
_LEAST_PART = 8
"""Characters of a part of a value that is hidden by itself; shorter ones are words."""
_LEAST_BEGINNING = 4
"""Characters of the beginning of a secret, at the end of a text that was cut, that are hidden too."""


_PARTS = re.compile("[/?&=#]")
"""What stands between the parts of a URL; the first of them is the host."""


class Details:
    """Words failures of one target."""

    def __init__(self, target: Target) -> None:
        self._secrets = _secrets(target)
        self._is_mattermost = target.config.type == MATTERMOST

    def answer(self, text: str) -> str:
        """Return what an endpoint answered as it may be shown."""
        return self.detail(_of_mattermost(text) if self._is_mattermost else text)

    def detail(self, text: str) -> str:
        """Return a text as it may be shown."""
        line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
        for secret in self._secrets:
            line = line.replace(secret, HIDDEN)
        for secret in self._secrets:
            line = _without_beginning(line, secret)
        return line.encode()[:MAX_BYTES].decode("utf-8", "ignore")


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
    """Return what must not be shown, the longest first: one may be in another."""
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
