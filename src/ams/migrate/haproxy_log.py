"""Lines of haproxy's log: what clients asked for, whatever stands before it (a syslog's date, host and program).

The format is that of `option httplog`, which ends in the request in quotation marks, or that of `deploy/haproxy`, which
ends in method and path, without a query, and an id.
"""

import re
from typing import NamedTuple

_ENTRY = r"(?:^|\s)\S+ \[[^\]]+\] (?P<place>\S+(?: \S+)?) -?\d+/-?\d+/-?\d+/-?\d+/\+?-?\d+ -?\d{1,3} \+?\d+ "
_QUOTED = re.compile(_ENTRY + r'.*"(?P<method>[A-Z]+) (?P<target>\S+)(?: HTTP/\d(?:\.\d)?)?"\s*$')
_PLAIN = re.compile(_ENTRY + r"\S+ \S+ (?P<method>[A-Z]+) (?P<target>\S+)(?: \S+)?\s*$")
_ESCAPED = re.compile("#([0-9A-F]{2})")
"""As haproxy writes what could break a line."""
OWN_CLIENT = "<HTTPCLIENT>"


class Logged(NamedTuple):
    """A request."""

    method: str
    target: str
    """Path and query as they came."""


def request_of(line: str) -> Logged | None:
    """Return the request of a line; None for a line of something else, of a request that was none, and a cut one."""
    found = _QUOTED.search(line) or _PLAIN.search(line)
    if found is None or OWN_CLIENT in found["place"]:
        return None
    target = _ESCAPED.sub(lambda each: chr(int(each[1], 16)), found["target"])
    if "://" in target.partition("?")[0]:  # HTTP/2: the whole URL
        target = "/" + target.partition("://")[2].partition("/")[2]
    return Logged(found["method"], target)
