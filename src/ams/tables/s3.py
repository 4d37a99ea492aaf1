"""Amazon S3, and what speaks like it: who we are and where it is are told by the environment, as to all its programs.

Credentials come by the usual chain (`AWS_ACCESS_KEY_ID` and others, profiles, roles of machines and containers), which
pyarrow and delta-rs follow in each process by themselves. So they are in no address, no option, and nothing that is
sent to other machines. `AWS_ENDPOINT_URL` names another server than Amazon's, and `AWS_REGION` the region.
"""

import os
import re
import urllib.parse
from functools import cache

import pyarrow.fs as pafs

from ams.tables.errors import WrongTable

SCHEME = "s3"
TIMEOUT_SECONDS = 30
"""For an answer to delta-rs, which then asks again where that does no harm."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 300
"""Characters of a reason."""


def checked(address: str) -> str:
    """Return `s3://BUCKET/PREFIX` without a slash at its end; raise `WrongTable` if it is none, or names a secret."""
    bucket, _, prefix = address.removeprefix(f"{SCHEME}:").removeprefix("//").partition("/")
    if "@" in bucket or ":" in bucket or "?" in address:
        raise WrongTable(
            "an address of S3 is s3://BUCKET/PREFIX and nothing more: credentials and endpoints come from the "
            "environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_ENDPOINT_URL)"
        )
    parts = prefix.strip("/").split("/")
    if (
        not address.startswith(f"{SCHEME}://")
        or not _BUCKET.fullmatch(bucket)
        or any(part in ("", ".", "..") for part in parts)
    ):
        raise WrongTable(f"{address}: a table on S3 lies in s3://BUCKET/PREFIX")
    return f"{SCHEME}://{bucket}/{'/'.join(parts)}"


def filesystem() -> pafs.FileSystem:
    """Return what pyarrow reads and writes by."""
    return _filesystem(_endpoint(), _first(_REGIONS))


@cache
def _filesystem(endpoint: str | None, region: str | None) -> pafs.FileSystem:
    where = urllib.parse.urlsplit(endpoint) if endpoint else None
    return pafs.S3FileSystem(
        region=region,
        endpoint_override=f"{where.netloc}{where.path.rstrip('/')}" if where else None,
        scheme=where.scheme if where else None,
        allow_delayed_open=True,  # so that a small file is one request
    )


def options() -> dict[str, str]:
    """Return what delta-rs has to know besides the environment: no secret is among it."""
    endpoint = _endpoint()
    told = {"AWS_ENDPOINT_URL": endpoint} if endpoint else {}
    if endpoint and endpoint.startswith("http:"):
        told["AWS_ALLOW_HTTP"] = "true"
    # A commit is a PUT that the server refuses where there is one already; no setting in the environment changes that.
    sure = {"AWS_CONDITIONAL_PUT": "etag", "AWS_S3_ALLOW_UNSAFE_RENAME": "false"}
    return {**told, **sure, "timeout": f"{TIMEOUT_SECONDS}s"}


def reason(error: BaseException) -> str:
    """Return why a call failed, in one line; what the server sent with it (key ids, signatures) is left out."""
    text = _COLORS.sub("", str(error))
    code = re.search(r"<Code>(\w+)</Code>", text)
    lines = [line.strip(" \t↳") for line in text.partition("<")[0].splitlines()]
    words = ": ".join(line for line in lines if line)[:_LONGEST]
    return f"{words} ({code[1]})" if code else words


def _endpoint() -> str | None:
    found = _first(_ENDPOINTS)
    if found is None:
        return None
    where = urllib.parse.urlsplit(found)
    if where.scheme not in ("http", "https") or not where.hostname or "@" in where.netloc or where.query:
        raise WrongTable("AWS_ENDPOINT_URL is an address http://HOST:PORT or https://HOST:PORT, without credentials")
    return found.rstrip("/")


def _first(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
