"""Requests in lines of haproxy's log."""

import pytest

from ams.migrate.haproxy_log import request_of

PLAIN = "192.0.2.7:47894 [28/Nov/2026:05:47:14.501] ams~ old/old1 0/0/0/1/1 200 121 - - ---- 1/1/0/0/0 0/0 "
OURS = "192.0.2.7:47894 [28/Nov/2026:05:47:14.501] ams/node1 0/0/0/1/1 200 121 ---- 1/1/0/0/0 "


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        (PLAIN + '"GET /v1/projects?key=a HTTP/1.1"', ("GET", "/v1/projects?key=a")),
        (PLAIN + '{agent|} {} "POST /v1/x:publish HTTP/1.1"', ("POST", "/v1/x:publish")),
        ("Nov 28 05:47:14 lb1 haproxy[1234]: " + PLAIN + '"GET /v1/users HTTP/1.1"\n', ("GET", "/v1/users")),
        ("<134>1 2026-11-28T05:47:14Z lb1 haproxy 12 - - " + PLAIN + '"GET /a HTTP/1.0"', ("GET", "/a")),
        (PLAIN + '"GET https://ams.example:443/v1/users?a=b://c HTTP/2.0"', ("GET", "/v1/users?a=b://c")),
        (PLAIN + '"GET /v1/x?a=#22#23b HTTP/1.1"', ("GET", '/v1/x?a="#b')),
        (PLAIN.replace("0/0/0/1/1 200 121", "0/-1/-1/-1/+12 -1 +121") + '"GET /v1/x HTTP/1.1"', ("GET", "/v1/x")),
        (OURS + "GET /v1/projects/P 0b1e", ("GET", "/v1/projects/P")),
        (PLAIN + '"<BADREQ>"', None),
        (PLAIN + '"GET /v1/projects/P/topics/cut-short', None),
        (PLAIN.replace("ams~ old/old1", "<HTTPCLIENT> <HTTPCLIENT>/<HTTPCLIENT>") + '{} "GET http://a HTTP/1"', None),
        ("192.0.2.7:4 [28/Nov/2026:05:47:14.501] tcp tcp/one 0/0/12 212 -- 1/1/0/0/0 0/0", None),
        ("Proxy ams started.", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_line_tells_its_request_or_none(line: str, request_: tuple[str, str] | None) -> None:
    assert request_of(line) == request_
