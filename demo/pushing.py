"""Messages by push: a receiver in this process gets every monitoring result, as it comes and as it went in.

The receiver is as small as one can be: it shows the verification hash, and notes what it is sent. Its certificate is
made for this run; the service is set to trust it, and that it may connect to this machine.
"""

import base64
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, NamedTuple, TypeVar

import msgspec
from argo_ams_library import ArgoMessagingService

from ams.http.tls import self_signed
from demo.service import Service
from demo.traffic import MONITORING, PROJECT, Ledger, Message, unless_there

SUBSCRIPTION = "watch_metric"
BATCH = 100
PATIENCE = 30.0
ALLOWED = "127.0.0.0/8,::1/128"


class _Sent(msgspec.Struct, rename="camel"):
    message_id: str
    data: str
    attributes: dict[str, str] = {}


class _Item(msgspec.Struct):
    message: _Sent


class _Delivery(msgspec.Struct):
    messages: list[_Item]


class Receiver(ThreadingHTTPServer):
    def __init__(self, ca: str, chain: str, key: str) -> None:
        super().__init__(("localhost", 0), _Handler)
        self.ca = ca  # the certificate that the service must trust to deliver here
        self.verification_hash = ""
        self.received: dict[str, Message] = {}
        self.deliveries = 0
        self.came = Event()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(chain, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.server_address[1]}/results"

    def note(self, body: bytes) -> None:
        """Note what was delivered; the same message may come again."""
        for item in msgspec.json.decode(body, type=_Delivery).messages:
            message = item.message
            self.received[message.message_id] = Message(message.attributes, base64.b64decode(message.data))
        self.deliveries += 1
        self.came.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that broke: the messages come again."""


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"  # connections are kept

    def do_GET(self) -> None:
        self._answer(self.server.verification_hash.encode())

    def do_POST(self) -> None:
        self.server.note(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the library
        """Print nothing."""


R = TypeVar("R", bound=Receiver)


@contextmanager
def receiving(kind: type[R]) -> Iterator[R]:
    with TemporaryDirectory(prefix="ams-demo-") as folder, kind(*self_signed(folder)) as receiver:
        Thread(target=receiver.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield receiver
        finally:
            receiver.shutdown()


def subscribe(service: Service, admin_token: str, receiver: Receiver) -> None:
    admin = ArgoMessagingService(endpoint=service.endpoint, token=admin_token, project=PROJECT)
    unless_there(lambda: admin.create_project(PROJECT, "The project of the demo"))
    unless_there(lambda: admin.create_topic(MONITORING.topic))
    unless_there(lambda: admin.create_sub(SUBSCRIPTION, MONITORING.topic))
    path = f"{service.url}/v1/projects/{PROJECT}/subscriptions/{SUBSCRIPTION}"
    wanted = {"pushConfig": {"type": "http_endpoint", "pushEndpoint": receiver.url, "maxMessages": BATCH}}
    # The library has a call for this, but none for more than one message in a delivery, nor for verifying.
    admin.do_post(f"{path}:modifyPushConfig", msgspec.json.encode(wanted), "sub_pushconfig")
    receiver.verification_hash = admin.get_sub(SUBSCRIPTION)["pushConfig"]["verificationHash"]
    admin.do_post(f"{path}:verifyPushEndpoint", b"{}", "sub_pushconfig")


class Outcome(NamedTuple):
    published: int
    delivered: int
    deliveries: int

    @property
    def is_whole(self) -> bool:
        return self.delivered == self.published


def outcome(published: Ledger, receiver: Receiver) -> Outcome:
    sent = published.messages
    while not sent.keys() <= receiver.received.keys() and receiver.came.wait(PATIENCE):
        receiver.came.clear()
    delivered = sum(receiver.received.get(message_id) == message for message_id, message in sent.items())
    return Outcome(len(sent), delivered, receiver.deliveries)
