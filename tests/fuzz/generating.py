"""Invalid requests made from the API's own description and a seed: the same seed makes the same requests."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes

NAMES = {
    "project": ["P", "Q"], "topic": ["T", "X", "Y"], "subscription": ["S", "R", "Z"], "schema": ["J", "A", "B"],
    "user": ["u", "v", "w"],
}  # fmt: skip
"""Names that sometimes exist. They are few, so that the requests create little."""
ODD_NAMES = [
    b"a.b", b"..", b".", b"", b"%", b"%2F", b"a%2Fb", b"%3Apull", b"T:publish", b"profile", b"usageReport", b"\xff",
    "ü".encode(), b"x" * 255, b"x" * 256, b"a b", b"-", b"_", b"T\n", b"%00", b"' OR 1=1 --", b"va_metrics",
]  # fmt: skip
DATES = [
    "2024-01-02", "2024-13-01", "0000-01-01", "9999-12-31", "1970-01-01", "2024-1-2", "today", "2024-02-30",
    "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.678Z", "2024-01-02 03:04:05.000Z", "2024-01-02T03:04:05+01:00",
    "9999-12-31T23:59:59.999999999Z", "0001-01-01T00:00:00Z", "2024-06-30T23:59:60Z",
]  # fmt: skip
NUMBERS: list[Any] = [
    0, 1, -1, 2, 10, 100, 600, 601, 10_000, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**40, 0.5, 10.0, 1e308,
    "0", "1", "-1", "+5", "10", " 1", "1e3", "0x10", "9" * 40, "NaN", "١",
]  # fmt: skip
WORDS = [
    "", "P", "T", "S", "u", "publisher", "consumer", "project_admin", "service_admin", "_admin_", "push_worker", "json",
    "protobuf", "definition",
    "avro", "JSON", "linear", "slowstart", "autogen", "disabled", "http_endpoint", "mattermost", "aGk=", "aG\nk=",
    "aGk",    "msg 1", "true", "false", "True", "projects/P/topics/T", "/projects/P/topics/T", "projects/P/schemas/J",
    "projects/Q/schemas/J", "projects/P/subscriptions/S:0", "projects/P/subscriptions/S:x", "https://127.0.0.1:1/x",
    "http://site.example", "projects/P/subscriptions/S:9223372036854775808", "\0", "\ud800", "a/b", "ü", "MQ==",
    "MA==", "bm90IGEgdG9rZW4=", "pending", "^(a+)+$", "x" * 300, "<script>", "{{7*7}}", "../../etc/passwd",
]  # fmt: skip
SCHEMAS: list[Any] = [
    {"type": "object", "required": ["a"]}, {"type": "unknown"}, {"$ref": "http://127.0.0.1:1/x"}, {"$ref": "#"}, {},
    {"type": "string", "pattern": "("}, {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]},
    {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "exclusiveMinimum": True, "minimum": 0},
]  # fmt: skip
CONTENT_TYPES = [b"application/json", b"text/plain", b"", b"application/x-www-form-urlencoded", b"multipart/form-data",
                 b"application/json; charset=utf-16"]  # fmt: skip
METHODS = [b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"BREW"]
_DEPTH = 4
_RARE_WEIGHT = 0.05  # weight of requests that delete the targets of other requests


class Request(NamedTuple):
    """One request as its parts; `line` is the target with its query."""

    method: bytes
    line: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    def to_bytes(self) -> bytes:
        head = [b"%b %b HTTP/1.1\r\nhost: localhost\r\n" % (self.method, self.line)]
        head += [b"%b: %b\r\n" % header for header in self.headers]
        return b"".join([*head, b"content-length: %d\r\n\r\n" % len(self.body), self.body])


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    parameters: Sequence[str]
    body: Mapping[str, Any] | None


class Generator:
    def __init__(self, api: Mapping[str, Any], tokens: Sequence[str], seed: int, spared: Sequence[str] = ()) -> None:
        self._random = Random(seed)
        self._components = api["components"]["schemas"]
        self._tokens = [each.encode() for each in tokens]
        self._operations = [each for each in _operations(api) if f"{each.method} {each.path}" not in spared]
        self._weights = [_RARE_WEIGHT if _takes_away(each) else 1.0 for each in self._operations]

    def request(self) -> Request:
        """Make the next request: most are nearly valid, as those get furthest."""
        random = self._random
        [operation] = random.choices(self._operations, self._weights)
        line = self._line(operation)
        method = operation.method.encode() if random.random() < 0.97 else random.choice(METHODS)
        return Request(method, line, self._headers(), self._body(operation))

    def noise(self) -> bytes:
        """Make bytes that are nearly HTTP, or not at all."""
        whole = bytearray(self.request().to_bytes())
        for _ in range(self._random.randint(1, 4)):
            place = self._random.randrange(len(whole))
            whole[place : place + self._random.randint(0, 3)] = self._random.randbytes(self._random.randint(0, 3))
        return bytes(whole)

    def _line(self, operation: Operation) -> bytes:
        parts = [self._part(part) for part in operation.path.split("/")]
        line = b"/".join(parts)
        if self._random.random() < 0.02:
            line = line.replace(b"/", self._random.choice([b"//", b"/./", b"/../", b"%2f"]), 2)
        return line + self._query(operation)

    def _part(self, part: str) -> bytes:
        if not part.startswith("{"):
            return part.encode()
        variable, _, verb = part[1:].partition("}")
        return self._name(variable) + verb.encode()

    def _name(self, variable: str) -> bytes:
        if self._random.random() < 0.08:
            odd = self._random.choice(ODD_NAMES)
            return odd if self._random.random() < 0.3 and odd.isascii() and odd.isalnum() else _escape_name(odd)
        return self._random.choice(NAMES.get(variable, ["0" * 64, "x"])).encode()

    def _query(self, operation: Operation) -> bytes:
        names = [name for name in operation.parameters if self._random.random() < 0.6]
        if self._random.random() < 0.03:
            names.append(self._random.choice(["key", "x", "pageSize", "details"]))
        pairs = [b"%b=%b" % (name.encode(), self._value_of(name)) for name in names]
        return b"?" + b"&".join(pairs) if pairs else b""

    def _value_of(self, name: str) -> bytes:
        kinds = {"pageSize": NUMBERS, "time": DATES, "start_date": DATES, "end_date": DATES}
        value = self._random.choice(kinds.get(name, [*WORDS, *NUMBERS]))
        return _escape_name(str(value).encode("utf-8", "surrogatepass"))

    def _headers(self) -> list[tuple[bytes, bytes]]:
        random = self._random
        token = self._tokens[0] if random.random() < 0.9 else random.choice([*self._tokens, b"", b"0" * 64, b"\xff"])
        headers = [(b"x-api-key", token)]
        if random.random() < 0.2:
            headers.append((b"content-type", random.choice(CONTENT_TYPES)))
        if random.random() < 0.05:
            headers.append((b"idempotency-key", random.choice([b"", b"k", b"x" * 256, b"\xe9", b"k2"])))
        if random.random() < 0.05:
            headers.append((b"accept", random.choice([b"text/html", b"application/vnd.apache.arrow.stream", b"*/*"])))
        if random.random() < 0.02:
            headers.append((b"origin", b"https://page.example"))
        return headers

    def _body(self, operation: Operation) -> bytes:
        random = self._random
        value = self._make_value(operation.body, 0) if operation.body else {}
        whole = json.dumps(value).encode()
        if random.random() < 0.6:
            return whole
        return random.choice(_SPOILERS)(random, whole)

    def _make_value(self, schema: Mapping[str, Any], depth: int) -> Any:
        """Make a value of a schema; sometimes one part has another type."""
        random = self._random
        if random.random() < 0.06 or depth > _DEPTH:
            return random.choice([None, [], {}, True, random.choice(WORDS), random.choice(NUMBERS), [{}], {"x": 1}])
        if "$ref" in schema:
            return self._make_value(self._components[schema["$ref"].rsplit("/", 1)[1]], depth)
        if "anyOf" in schema:
            return self._make_value(random.choice([e for e in schema["anyOf"] if e.get("type") != "null"]), depth)
        return self._of_type(schema, depth)

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> Any:
        random = self._random
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return [self._make_value(schema.get("items", {}), depth + 1) for _ in range(random.randint(0, 3))]
        if kind == "integer":
            return random.choice([0, 1, 2, 10, random.choice(NUMBERS)])
        if kind == "boolean":
            return random.random() < 0.5
        return random.choice(WORDS) if kind == "string" else random.choice(SCHEMAS)

    def _object(self, schema: Mapping[str, Any], depth: int) -> Any:
        random = self._random
        if "properties" not in schema:
            more = schema.get("additionalProperties")
            inner = more if isinstance(more, Mapping) else {}
            return random.choice([{random.choice(WORDS): self._make_value(inner, depth + 1)}, random.choice(SCHEMAS)])
        chosen = [name for name in schema["properties"] if random.random() < 0.8]
        return {self._misspell(name): self._make_value(schema["properties"][name], depth + 1) for name in chosen}

    def _misspell(self, name: str) -> str:
        return name if self._random.random() < 0.9 else self._random.choice([name.upper(), name.lower(), name + "x"])


def _takes_away(operation: Operation) -> bool:
    return operation.method == "DELETE" or (operation.method, operation.path) == ("PUT", "/v1/projects/{project}")


def _operations(api: Mapping[str, Any]) -> list[Operation]:
    return [
        Operation(
            method.upper(), path, [each["name"] for each in described["parameters"] if each["in"] == "query"],
            next(iter(described.get("requestBody", {}).get("content", {}).values()), {}).get("schema"),
        )
        for path, methods in api["paths"].items()
        for method, described in methods.items()
    ]  # fmt: skip


def _escape_name(name: bytes) -> bytes:
    return quote_from_bytes(name, safe="%'.-_:").encode()


def _cut_body(random: Random, body: bytes) -> bytes:
    return body[: random.randint(0, len(body))]


def _damage_body(random: Random, body: bytes) -> bytes:
    place = random.randint(0, len(body))
    return body[:place] + random.randbytes(random.randint(1, 5)) + body[place + random.randint(0, 3) :]


def _double_members(random: Random, body: bytes) -> bytes:
    """Repeat every member, the second time with another value."""
    if body[:1] != b"{" or len(body) < 3:
        return body * 2
    other = random.choice([b"null", b"1", b'"x"', b"[]", b"{}"])
    first = body[1:].partition(b":")[0]
    return body[:-1] + b"," + first + b":" + other + b"}"


def _recode_body(random: Random, body: bytes) -> bytes:
    return body.decode().encode(random.choice(["utf-16", "utf-32", "utf-8-sig"]))


_SPOILERS: list[Callable[[Random, bytes], bytes]] = [
    _cut_body, _damage_body, _double_members, _recode_body,
    lambda random, body: body + random.choice([b"x", b"{}", b" ", b"\n\n", b"//", b"\0"]),
    lambda random, _: random.choice([b"", b"null", b"[]", b'""', b"1", b"true", b"{", b"\xff\xfe", b"[" * 300, b"{}"]),
    lambda random, _: b'{"messages":' + b"[" * 2000 + b"]" * random.choice([0, 2000]) + b"}",
]  # fmt: skip
