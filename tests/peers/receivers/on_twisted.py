from keeping import CERTIFICATE, KEY, PORT, REASON, keep, read_hash
from twisted.internet import reactor, ssl
from twisted.web.pages import errorPage
from twisted.web.resource import Resource
from twisted.web.server import Request, Site


class Receiver(Resource):
    isLeaf = True  # noqa: N815 - the name that Twisted asks for

    def render_GET(self, request: Request) -> bytes:  # noqa: N802 - likewise
        return read_hash().encode()

    def render_POST(self, request: Request) -> bytes:  # noqa: N802 - likewise
        path = request.path.decode()
        raw = request.requestHeaders.getAllRawHeaders()
        headers = [(name.decode(), each.decode()) for name, values in raw for each in values]
        keep(path, request.getClientAddress().port, headers, request.content.read().decode())
        if path == "/refuse":
            return errorPage(400, "Bad Request", REASON).render(request)
        if path == "/close":
            request.setHeader("Connection", "close")
        return b""


reactor.listenSSL(PORT, Site(Receiver()), ssl.DefaultOpenSSLContextFactory(KEY, CERTIFICATE), interface="127.0.0.1")
reactor.run()
