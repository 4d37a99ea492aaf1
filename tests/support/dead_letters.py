"""Dead letters as a worker makes them, without an endpoint that refuses messages."""

import ssl
from pathlib import Path

import httpx


def dead_letter(base_url: str, ca: Path, worker_token: str, name: str, offset: int, reason: str, status: int) -> None:
    """Make a message of a subscription a dead letter; `name` is `projects/P/subscriptions/S`."""
    letter = {"ackId": f"{name}:{offset}", "reason": reason, "attempts": 3, "status": status}
    with httpx.Client(trust_env=False, verify=ssl.create_default_context(cafile=str(ca)), timeout=10) as client:
        answer = client.post(f"{base_url}/v1/{name}:deadLetter", json=letter, headers={"x-api-key": worker_token})
    assert answer.status_code == 200, answer.text
