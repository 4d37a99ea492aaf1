"""Writes `src/ams/client/client.py`, the client for threads, from `async_client.py`, when a package or .venv is made.

It drops `await` and `Async` in names of classes; `TEXTS` has the other differences. With --check it writes
nothing, and exits with 1 if the file is not up to date.
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "ams" / "client"
SOURCE, TARGET = FOLDER / "async_client.py", FOLDER / "client.py"

TEXTS = {
    "The client for programs on asyncio, from which `make client` writes that for threads, `ams.client.client`.": (
        "The client for programs with threads, or with none; `make client` writes it from `ams.client.async_client`."
    ),
    "may be used in one event loop": "may be used from several threads",
    "import asyncio\n": "",
    "asyncio.Event()": "threading.Event()",
    """        try:
            await asyncio.wait_for(self._closing.wait(), step)
        except TimeoutError:
            return None
        raise Closed("the client is closed")
""": """        if self._closing.wait(step):
            raise Closed("the client is closed")
        return None
""",
    "self._http.aclose()": "self._http.close()",
    "import AsyncWorker": "import work_in_threads",
    "await AsyncWorker(connections, plans, (self.project, self.name), handler, options).run()": (
        "work_in_threads(connections, plans, (self.project, self.name), handler, options)"
    ),
    "    That may be a coroutine function, too.\n": "",
    "        The loop is an `async for`.\n": "",
    "The handler is a coroutine function.\n": "Handlers run in threads.\n",
}
"""Replacements; each must occur in the source."""
WORDS = {r"\basync (?=def|with|for)": "", r"\bawait ": "", r"\b(__)a(?=enter|exit)": r"\1", r"\bAsync(?=[A-Z])": ""}


def sync_client(source: str) -> str:
    """Return the client for threads. Raises: ValueError: a replacement does not occur in the source."""
    for text, other in TEXTS.items():
        if text not in source:
            raise ValueError(f"not in {SOURCE.name}: {text}")
        source = source.replace(text, other)
    for pattern, other in WORDS.items():
        source = re.sub(pattern, other, source)
    return source


def main() -> int:
    """Write or check the file. Returns the exit code."""
    text = sync_client(SOURCE.read_text())
    if "--check" in sys.argv[1:]:
        return int(TARGET.read_text() != text)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
