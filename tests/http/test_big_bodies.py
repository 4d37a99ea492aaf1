"""Big requests over a socket."""

from pathlib import Path

import httpx

from tests.support.service import running_service


async def test_11_1_all_of_a_large_pull_with_long_names_can_be_acknowledged(tmp_path: Path) -> None:
    project, subscription = "p" * 60, "s" * 90
    path = f"/v1/projects/{project}/subscriptions/{subscription}"
    topic = f"projects/{project}/topics/t"
    async with running_service(tmp_path / "ams-data") as (run, token):
        headers = {"x-api-key": token}
        async with httpx.AsyncClient(base_url=run.base_url, headers=headers, trust_env=False, timeout=20) as http:
            await http.post(f"/v1/projects/{project}", json={})
            await http.put(f"/v1/{topic}")
            await http.put(path, json={"topic": topic})
            await http.post(f"/v1/{topic}:publish", json={"messages": [{"data": "aGk="}] * 10_000})
            pulled = (await http.post(f"{path}:pull", json={"maxMessages": "10000"})).json()["receivedMessages"]
            ids = [each["ackId"] for each in pulled]
            answer = await http.post(f"{path}:acknowledge", json={"ackIds": ids})
            offsets = (await http.get(f"{path}:offsets")).json()

    assert sum(map(len, ids)) > 2**20
    assert (answer.status_code, answer.text) == (200, "{}")
    assert offsets["current"] == 10_000
