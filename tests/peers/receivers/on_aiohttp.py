from aiohttp import web
from keeping import PORT, REASON, keep, read_hash, tls


async def show(_: web.Request) -> web.Response:
    return web.Response(text=read_hash())


async def take(request: web.Request) -> web.Response:
    assert request.transport is not None
    port = request.headers.get("X-Client-Port") or request.transport.get_extra_info("peername")[1]
    keep(request.path, port, request.headers.items(), await request.text())
    if request.path == "/refuse":
        raise web.HTTPBadRequest(text=REASON)
    answer = web.Response()
    if request.path == "/close":
        answer.force_close()
    return answer


app = web.Application()
app.add_routes([web.get("/ams_verification_hash", show), web.post("/{_}", take)])
web.run_app(app, host="127.0.0.1", port=PORT, ssl_context=tls(), print=None)
