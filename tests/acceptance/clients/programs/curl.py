"""Ask with one run of curl, which keeps its connection: `curl.py [OPTION of curl]... PLAN`."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def _arguments(plan: dict[str, Any], ask: dict[str, Any], options: list[str], place: Path) -> list[str]:
    arguments = [*options, "--silent", "--show-error", "--compressed", "--cacert", plan["ca"], "--max-time", "30"]
    arguments += ["--request", ask["method"], "--header", f"x-api-key: {ask['token']}"]
    if ask["body"]:
        place.with_suffix(".body").write_text(ask["body"])
        arguments += ["--data-binary", f"@{place.with_suffix('.body')}"]
    if ask["chunked"] and "--http1.0" not in options:
        arguments += ["--header", "Transfer-Encoding: chunked"]
    if ask["expect"]:
        arguments += ["--header", "Expect: 100-continue"]
    if ask["close"]:
        arguments += ["--header", "Connection: close"]
    wanted = r'{"status": %{http_code}, "version": "%{http_version}"}\n'
    return [*arguments, "--output", str(place), "--write-out", wanted, plan["base"] + ask["path"]]


def main() -> None:
    *options, path = sys.argv[1:]
    plan = json.loads(Path(path).read_text())
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / str(number) for number, _ in enumerate(plan["asks"])]
        command = ["curl"]
        for ask, place in zip(plan["asks"], places, strict=True):
            command += [*(["--next"] if len(command) > 1 else []), *_arguments(plan, ask, options, place)]
        lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
        answers = [{**json.loads(line), "body": place.read_text()} for line, place in zip(lines, places, strict=True)]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
