from typing import Any

import httpx

from tests.support.served import InProcessService


class Client(httpx.Client):
    """Sends requests below `/v1`; each topic it makes has a subscription named after it with an s."""

    def __init__(self, given: InProcessService, **options: Any) -> None:
        super().__init__(base_url=f"{given.run.base_url}/v1", headers={"x-api-key": given.token}, **options)
        self.given = given

    def prepare(self, project: str = "P") -> "Client":
        self.post(f"/projects/{project}", json={}).raise_for_status()
        self.topic("t", project)
        return self

    def topic(self, name: str, project: str = "P") -> None:
        self.put(f"/projects/{project}/topics/{name}").raise_for_status()
        topic = {"topic": f"projects/{project}/topics/{name}"}
        self.put(f"/projects/{project}/subscriptions/{name}s", json=topic).raise_for_status()

    def publish(self, *data: str, topic: str = "t", key: str = "", project: str = "P") -> httpx.Response:
        messages = {"messages": [{"data": each} for each in data]}
        headers = {"idempotency-key": key} if key else {}
        return self.post(f"/projects/{project}/topics/{topic}:publish", json=messages, headers=headers)

    def pull(self, topic: str = "t", project: str = "P", **wanted: str) -> list[Any]:
        answer = self.post(f"/projects/{project}/subscriptions/{topic}s:pull", json=wanted).raise_for_status()
        return list(answer.json()["receivedMessages"])
