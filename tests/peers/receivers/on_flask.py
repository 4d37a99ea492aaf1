"""Run by itself on Werkzeug, and by gunicorn."""

from flask import Flask, Response, abort, request
from keeping import CERTIFICATE, KEY, PORT, REASON, keep, read_hash

app = Flask(__name__)


@app.get("/ams_verification_hash")
def show() -> str:
    return read_hash()


@app.post("/<_>")
def take(_: str) -> Response:
    keep(request.path, request.environ["REMOTE_PORT"], request.headers.items(), request.get_data(as_text=True))
    if request.path == "/refuse":
        abort(400, REASON)
    return Response("", headers={"Connection": "close"} if request.path == "/close" else None)


if __name__ == "__main__":
    app.run("127.0.0.1", PORT, ssl_context=(CERTIFICATE, KEY))
