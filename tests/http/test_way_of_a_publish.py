"""The way of a publish, as `docs/explanation/architecture.md` has it: a stranger reads there which files to know."""

import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import httpx
import pytest

import ams
from tests.support.served import SERVICE_TOKEN, served

PACKAGE = Path(ams.__file__).parent
ARCHITECTURE = Path(__file__).parents[2] / "docs/explanation/architecture.md"
MOST_FILES = 19
ROW = re.compile(r"\| `([\w/]+)` \| (.+?) \|")

Way = dict[str, set[str]]
"""Names of functions by the files of ours they are in."""


class Trace:
    """Which functions of ours run in threads that were started under it, while it is on."""

    def __init__(self) -> None:
        self.seen: Way | None = None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        seen, code = self.seen, frame.f_code
        if seen is not None and event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            file = code.co_filename.removeprefix(f"{PACKAGE}/").removesuffix(".py")
            seen[file] |= {code.co_qualname, code.co_name}


@contextmanager
def tracing() -> Iterator[Trace]:
    trace = Trace()
    threading.setprofile(trace)
    try:
        yield trace
    finally:
        threading.setprofile(None)


def ways(trace: Trace, http: httpx.Client, publishes: int) -> list[Way]:
    found = []
    for _ in range(publishes):
        trace.seen = way = defaultdict(set)
        answer = http.post("/v1/projects/P/topics/T:publish", json={"messages": [{"data": "aGk="}]})
        trace.seen = None
        assert answer.status_code == 200
        found.append(way)
    return found


@pytest.mark.embedded("the files are those of the embedded engine")
def test_a_publish_runs_through_the_files_and_functions_that_the_architecture_lists(tmp_path: Path) -> None:
    with tracing() as trace, served(tmp_path / "ams-data") as service:
        headers = {"x-api-key": SERVICE_TOKEN}
        with httpx.Client(base_url=service.run.base_url, headers=headers, trust_env=False, timeout=10) as http:
            publisher = {"projects": [{"project": "P", "roles": ["publisher"]}]}
            http.post("/v1/projects/P", json={})
            http.put("/v1/projects/P/topics/T")
            http.headers["x-api-key"] = http.post("/v1/users/pub", json=publisher).json()["token"]
            acl = {"authorized_users": ["pub"]}
            http.post("/v1/projects/P/topics/T:modifyAcl", json=acl, headers=headers)
            ways(trace, http, 2)  # from here on memory knows token and topic

            # What goes on beside the requests is in one or the other of these, but not in all.
            all_ways = ways(trace, http, 5)

    files = set.intersection(*(set(way) for way in all_ways))
    functions = {file: set.intersection(*(way[file] for way in all_ways)) for file in files}
    listed = listed_way()
    assert files == set(listed)
    assert {file: names - functions[file] for file, names in listed.items() if names - functions[file]} == {}
    assert len(files) <= MOST_FILES


def listed_way() -> Way:
    _, _, section = ARCHITECTURE.read_text().partition("## The way of a publish")
    listed: Way = defaultdict(set)
    for file, functions in ROW.findall(section.partition("\n## ")[0]):
        listed[file] |= set(re.findall(r"`([\w.]+)`", functions))
    return listed
