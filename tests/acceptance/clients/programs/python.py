"""Ask with a Python client: `python.py requests|urllib3|httpx|aiohttp PLAN`. requests opens a connection a call."""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

PIECE = 50_000
VERSIONS = {10: "1.0", 11: "1.1"}
Answer = tuple[int, str, str]  # status, body, and version of HTTP


def _headers(ask: dict[str, Any]) -> dict[str, str]:
    closing = {"Connection": "close"} if ask["close"] else {}
    return {"x-api-key": ask["token"], **closing}


def _pieces(ask: dict[str, Any]) -> Iterator[bytes]:
    body = ask["body"].encode()
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


async def _slow_pieces(ask: dict[str, Any]) -> AsyncIterator[bytes]:
    for piece in _pieces(ask):
        yield piece


def _body(ask: dict[str, Any]) -> Any:
    return _pieces(ask) if ask["chunked"] else ask["body"].encode()


def _trust_context(plan: dict[str, Any]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=plan["ca"] if Path(plan["ca"]).exists() else None)


def _with_requests(plan: dict[str, Any]) -> Iterator[Answer]:
    import requests

    for ask in plan["asks"]:
        url, more = plan["base"] + ask["path"], {"verify": plan["ca"], "timeout": 30}
        each = requests.request(ask["method"], url, headers=_headers(ask), data=_body(ask), **more)
        yield each.status_code, each.text, VERSIONS[each.raw.version]


def _with_urllib3(plan: dict[str, Any]) -> Iterator[Answer]:
    import urllib3

    pool = urllib3.PoolManager(ca_certs=plan["ca"], timeout=30, retries=False)
    for ask in plan["asks"]:
        headers = _headers(ask) | {"Accept-Encoding": "gzip"}
        url = plan["base"] + ask["path"]
        each = pool.request(ask["method"], url, headers=headers, body=_body(ask), chunked=ask["chunked"])
        yield each.status, each.data.decode(), VERSIONS[each.version]


def _with_httpx(plan: dict[str, Any]) -> Iterator[Answer]:
    import httpx

    with httpx.Client(base_url=plan["base"], verify=_trust_context(plan), trust_env=False, timeout=30) as client:
        for ask in plan["asks"]:
            each = client.request(ask["method"], ask["path"], headers=_headers(ask), content=_body(ask))
            yield each.status_code, each.text, each.http_version.removeprefix("HTTP/")


async def _with_aiohttp(plan: dict[str, Any]) -> list[Answer]:
    import aiohttp

    answers, trusted = [], _trust_context(plan)
    async with aiohttp.ClientSession(plan["base"]) as session:
        for ask in plan["asks"]:
            body = _slow_pieces(ask) if ask["chunked"] else _body(ask)
            more = {"headers": _headers(ask), "expect100": ask["expect"], "ssl": trusted}
            async with session.request(ask["method"], ask["path"], data=body, **more) as answer:
                assert answer.version is not None
                answers.append((answer.status, await answer.text(), ".".join(map(str, answer.version))))
    return answers


CLIENTS: dict[str, Callable[[dict[str, Any]], Iterable[Answer]]] = {
    "requests": _with_requests, "urllib3": _with_urllib3, "httpx": _with_httpx,
    "aiohttp": lambda plan: asyncio.run(_with_aiohttp(plan)),
}  # fmt: skip

if __name__ == "__main__":
    chosen, path = sys.argv[1:]
    answers = CLIENTS[chosen](json.loads(Path(path).read_text()))
    print(json.dumps([{"status": status, "body": body, "version": version} for status, body, version in answers]))
