"""Ask with a Python client: `python.py requests|urllib3|httpx|aiohttp PLAN`. requests opens a connection a call."""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

PIECE = 50_000


def _headers(ask: dict[str, Any]) -> dict[str, str]:
    headers = {"x-api-key": ask["token"]}
    if ask["close"]:
        headers["Connection"] = "close"
    return headers


def _pieces(ask: dict[str, Any]) -> Iterator[bytes]:
    body = ask["body"].encode()
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


async def _slow_pieces(ask: dict[str, Any]) -> AsyncIterator[bytes]:
    for piece in _pieces(ask):
        yield piece


def _body(ask: dict[str, Any]) -> Any:
    return _pieces(ask) if ask["chunked"] else ask["body"].encode()


def _trusted(plan: dict[str, Any]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=plan["ca"] if Path(plan["ca"]).exists() else None)


def _with_requests(plan: dict[str, Any]) -> list[Any]:
    import requests

    answers = [
        requests.request(
            ask["method"],
            plan["base"] + ask["path"],
            headers=_headers(ask),
            data=_body(ask),
            verify=plan["ca"],
            timeout=30,
        )
        for ask in plan["asks"]
    ]
    versions = {10: "1.0", 11: "1.1"}
    return [(each.status_code, each.text, versions[each.raw.version]) for each in answers]


def _with_urllib3(plan: dict[str, Any]) -> list[Any]:
    import urllib3

    pool = urllib3.PoolManager(ca_certs=plan["ca"], timeout=30, retries=False)
    answers = [
        pool.request(
            ask["method"],
            plan["base"] + ask["path"],
            headers=_headers(ask) | {"Accept-Encoding": "gzip"},
            body=_body(ask),
            chunked=ask["chunked"],
        )
        for ask in plan["asks"]
    ]
    return [(each.status, each.data.decode(), "1.0" if each.version == 10 else "1.1") for each in answers]


def _with_httpx(plan: dict[str, Any]) -> list[Any]:
    import httpx

    with httpx.Client(base_url=plan["base"], verify=_trusted(plan), trust_env=False, timeout=30) as client:
        answers = [
            client.request(ask["method"], ask["path"], headers=_headers(ask), content=_body(ask))
            for ask in plan["asks"]
        ]
    return [(each.status_code, each.text, each.http_version.removeprefix("HTTP/")) for each in answers]


async def _with_aiohttp(plan: dict[str, Any]) -> list[Any]:
    import aiohttp

    trusted = _trusted(plan)
    answers = []
    async with aiohttp.ClientSession(plan["base"]) as session:
        for ask in plan["asks"]:
            async with session.request(
                ask["method"],
                ask["path"],
                headers=_headers(ask),
                data=_slow_pieces(ask) if ask["chunked"] else ask["body"].encode(),
                expect100=ask["expect"],
                ssl=trusted,
            ) as answer:
                assert answer.version is not None
                answers.append((answer.status, await answer.text(), ".".join(map(str, answer.version))))
    return answers


def main() -> None:
    """Ask all of the plan."""
    client, path = sys.argv[1:]
    with open(path) as file:
        plan = json.load(file)
    match client:
        case "requests":
            answers = _with_requests(plan)
        case "urllib3":
            answers = _with_urllib3(plan)
        case "httpx":
            answers = _with_httpx(plan)
        case "aiohttp":
            answers = asyncio.run(_with_aiohttp(plan))
        case _:
            sys.exit(f"no such client: {client}")
    print(json.dumps([{"status": status, "body": body, "version": version} for status, body, version in answers]))


if __name__ == "__main__":
    main()
