"""A minimal certificate service with the contract of its management (authn contract 3 to 8)."""

import contextlib
import json
import ssl
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.http_server import QuietHandler, http_server

KEY = "the-management-key"
DATE = "2026-01-02T03:04:05Z"

Record = dict[str, Any]


class Refusal(Exception):
    def __init__(self, code: int, status: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class CertificateService:
    def __init__(self) -> None:
        self.url = ""
        self.service_types: list[Record] = []
        self.auth_methods: list[Record] = []
        self.bindings: list[Record] = []
        self.keys: list[Record] = []
        self.events: list[Record] = []  # of the audit log
        self.tokens: dict[str, str] = {}  # tokens by the common name of who logs in
        self.changes: list[tuple[str, str, Record]] = []  # method, path and body of all that changed something
        self.asked: list[str] = []  # all addresses
        self.failing: dict[str, int] = {}
        """Error statuses for making, changing or removing bindings of these names."""

    def answer(self, method: str, target: str, key: str | None, body: Record, name: str | None) -> tuple[int, Any]:
        self.asked.append(target)
        parts = urlsplit(target)
        path = [unquote(each) for each in parts.path.split("/")[2:]]
        if target.endswith(":authx509"):
            return 200, {"token": self._token(name)}
        if key != KEY:
            raise Refusal(401, "UNAUTHORIZED", "Wrong Credentials")
        if method != "GET":
            self.changes.append((method, parts.path, body))
        if path[-1] in self.failing and path[0] == "bindings":
            raise Refusal(self.failing[path[-1]], "INTERNAL SERVER ERROR", "Database Error: gone")
        match path:
            case ["service-types"] if method == "POST":
                return 201, self._create_record(self.service_types, body)
            case ["service-types"]:
                return 200, {"service_types": self.service_types}
            case ["service-types", kind]:
                return self._one(method, self.service_types, "Service-type", body, name=kind)
            case ["service-types", kind, "authm"]:
                found = self._find(self.service_types, "Service-type", name=kind)
                own = {"service_uuid": found["uuid"], "type": found["auth_method"]}
                return 201, _mask_secrets(self._create_record(self.auth_methods, body | own, "host"))
            case ["service-types", kind, "hosts", host, "authm"]:
                of = {"service_uuid": self._find(self.service_types, "Service-type", name=kind)["uuid"], "host": host}
                code, shown = self._one(method, self.auth_methods, "Auth method", body, **of)
                return code, _mask_secrets(shown) if shown else None
            case ["service-types", kind, "hosts", host, "bindings"]:
                of = {"service_uuid": self._find(self.service_types, "Service-type", name=kind)["uuid"], "host": host}
                if "authID" in (query := parse_qs(parts.query)):
                    subject = query["authID"][0]
                    return 200, {"bindings": [self._find(self.bindings, "Binding", auth_identifier=subject, **of)]}
                return 200, {"bindings": [each for each in self.bindings if of.items() <= each.items()]}
            case ["authm"]:
                return 200, {"auth_methods": [_mask_secrets(each) for each in self.auth_methods]}
            case ["bindings"]:
                return 200, {"bindings": self.bindings}
            case ["bindings", named] if method == "POST":
                if any(each["auth_identifier"] == body["auth_identifier"] for each in self.bindings):
                    text = f"binding object with auth_identifier: {body['auth_identifier']} already exists"
                    raise Refusal(409, "CONFLICT", text)
                return 201, self._create_record(self.bindings, body | {"name": named})
            case ["bindings", named]:
                return self._one(method, self.bindings, "Binding", body, name=named)
            case ["keys"]:
                return 200, {"keys": self.keys}
            case ["audit"]:
                asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
                return 200, {"events": [each for each in self.events if asked.items() <= each.items()]}
            case ["keys", named] if method == "POST":
                return 201, self._create_record(self.keys, body | {"name": named}) | {"key": f"key-of-{named}"}
            case ["keys", named]:
                return self._one(method, self.keys, "Key", body, name=named)
        raise Refusal(404, "NOT FOUND", "Not found")

    def _token(self, name: str | None) -> str:
        if name is None:
            raise Refusal(400, "BAD REQUEST", "No certificate provided")
        if name not in self.tokens:
            raise Refusal(404, "NOT FOUND", "Binding was not found")
        return self.tokens[name]

    def _create_record(self, records: list[Record], body: Record, unique: str = "name") -> Record:
        if any(each[unique] == body[unique] for each in records):
            raise Refusal(409, "CONFLICT", f"object with {unique}: {body[unique]} already exists")
        made = body | {"uuid": str(uuid.uuid4()), "created_on": DATE}
        records.append(made)
        return made

    def _one(self, method: str, records: list[Record], thing: str, body: Record, **of: str) -> tuple[int, Any]:
        found = self._find(records, thing, **of)
        if method == "DELETE":
            records.remove(found)
            return 204, None
        if method == "PUT":
            found.update(body | {"updated_on": DATE})
        return 200, found

    @staticmethod
    def _find(records: list[Record], thing: str, **of: str) -> Record:
        for each in records:
            if of.items() <= each.items():
                return each
        raise Refusal(404, "NOT FOUND", f"{thing} was not found")


def _mask_secrets(record: Record) -> Record:
    """Return an auth method without its secrets (authn contract 15, A16)."""
    hidden = {"headers": dict.fromkeys(record["headers"], "***")} if "headers" in record else {"access_key": "***"}
    return record | hidden


@contextlib.contextmanager
def certificate_service(tls: ssl.SSLContext | None = None) -> Iterator[CertificateService]:
    """Run one on a free port of this machine; with TLS it identifies clients."""
    service = CertificateService()

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802  # the name the standard library calls
            sent = self.rfile.read(int(self.headers.get("content-length", 0)))
            name = _common_name(self.connection) if tls else None
            key = self.headers.get("x-api-key")
            try:
                code, body = service.answer(self.command, self.path, key, json.loads(sent or "{}"), name)
            except Refusal as error:
                code, body = error.code, {"error": {"message": str(error), "code": error.code, "status": error.status}}
            self.reply(code, b"" if body is None else json.dumps(body, indent=1).encode())

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  # as above

        def finish(self) -> None:
            super().finish()
            self.connection.close()

    with http_server(Handler, tls) as service.url:
        yield service


def _common_name(connection: Any) -> str | None:
    shown = connection.getpeercert()
    return dict(pair for part in shown["subject"] for pair in part)["commonName"] if shown else None
