"""What a node that owns a subscription gets to know of a call that came to another."""

import grpc
import pytest

from ams.core.errors import OwnedElsewhere
from ams.pubsub.relaying import Relays

pytestmark = pytest.mark.embedded("calls between nodes have nothing to do with engines")


class Context:
    """A call that came from a proxy."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", "Bearer token"), ("x-forwarded-for", "203.0.113.9"), ("user-agent", "other"))

    def peer(self) -> str:
        return "ipv4:192.0.2.5:4711"

    def time_remaining(self) -> None:
        return None


async def test_the_owner_is_told_the_token_and_where_and_what_the_client_is() -> None:
    async def answer(_: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        given = dict(context.invocation_metadata() or ())
        wanted = ("authorization", "x-forwarded-for", "x-ams-forwarded-by", "x-ams-user-agent")
        return "|".join(str(given[name]) for name in wanted).encode()

    handler = grpc.method_handlers_generic_handler("Service", {"Call": grpc.unary_unary_rpc_method_handler(answer)})
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    relays = Relays("node1", lambda _: None)
    elsewhere = OwnedElsewhere(subscription="s", node="node2", pubsub=f"127.0.0.1:{port}")
    try:
        said = await relays.unary(elsewhere, "/Service/Call", b"", Context())  # type: ignore[arg-type]
    finally:
        await relays.close()
        await server.stop(None)
    assert said == b"Bearer token|203.0.113.9, 192.0.2.5|node1|other"
