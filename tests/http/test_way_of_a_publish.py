"""The path of a publish matches `docs/explanation/architecture.md`, which lists its files for new readers."""

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
from ams.core.clock import SystemClock
from tests.support.served import in_process_service

PACKAGE = Path(ams.__file__).parent
ARCHITECTURE = Path(__file__).parents[2] / "docs/explanation/architecture.md"
MESSAGES = {"messages": [{"data": "aGk="}]}
MOST_FILES = 22
ROW = re.compile(r"\| `([\w/]+)` \| (.+?) \|")

Way = dict[str, set[str]]  # names of functions by the files of ours they are in


class Trace:
    """Our own functions called in threads started under it, while it is on."""

    def __init__(self) -> None:
        self.seen: Way | None = None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        seen, code = self.seen, frame.f_code
        if seen is not None and event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            file = code.co_filename.removeprefix(f"{PACKAGE}/").removesuffix(".py")
            seen[file] |= {code.co_qualname, code.co_name}


@contextmanager
def trace_calls() -> Iterator[Trace]:
    trace = Trace()
    threading.setprofile(trace)
    try:
        yield trace
    finally:
        threading.setprofile(None)


@pytest.mark.embedded("the files are those of the embedded engine")
def test_a_publish_runs_through_the_files_and_functions_that_the_architecture_lists(tmp_path: Path) -> None:
    with trace_calls() as trace, in_process_service(tmp_path / "ams-data", SystemClock()) as service:
        publisher = {"projects": [{"project": "P", "roles": ["publisher"]}]}
        service.ask("POST", "/projects/P", {})
        service.ask("PUT", "/projects/P/topics/T")
        token = service.ask("POST", "/users/pub", publisher)["token"]
        service.ask("POST", "/projects/P/topics/T:modifyAcl", {"authorized_users": ["pub"]})
        all_ways = []
        with httpx.Client(headers={"x-api-key": token}, trust_env=False, timeout=10) as http:
            for _ in range(7):
                trace.seen = way = defaultdict(set)
                answer = http.post(f"{service.run.base_url}/v1/projects/P/topics/T:publish", json=MESSAGES)
                trace.seen = None
                assert answer.status_code == 200
                all_ways.append(way)

    # After two, token and topic are cached; background work is in some of the others, not in all.
    del all_ways[:2]
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
