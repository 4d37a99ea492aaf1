"""Run by uvicorn and by hypercorn."""

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse
from keeping import REASON, keep, read_hash

app = FastAPI()


@app.get("/ams_verification_hash")
def show() -> PlainTextResponse:
    return PlainTextResponse(read_hash())


@app.post("/{_}")
async def take(_: str, request: Request) -> Response:
    assert request.client is not None
    keep(request.url.path, request.client.port, request.headers.items(), (await request.body()).decode())
    if request.url.path == "/refuse":
        raise HTTPException(400, REASON)
    return Response(status_code=204, headers={"Connection": "close"} if request.url.path == "/close" else None)
