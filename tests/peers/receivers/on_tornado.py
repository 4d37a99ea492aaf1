import asyncio

from keeping import PORT, REASON, keep, read_hash, tls
from tornado.web import Application, RequestHandler


class Show(RequestHandler):
    def get(self) -> None:
        self.write(read_hash())


class Take(RequestHandler):
    def post(self) -> None:
        port = self.request.connection.context.address[1]
        keep(self.request.path, port, self.request.headers.get_all(), self.request.body.decode())
        if self.request.path == "/refuse":
            self.send_error(400, reason=REASON)
        if self.request.path == "/close":
            self.set_header("Connection", "close")


async def main() -> None:
    app = Application([("/ams_verification_hash", Show), ("/.*", Take)])
    app.listen(PORT, "127.0.0.1", ssl_options=tls())
    await asyncio.Event().wait()


asyncio.run(main())
