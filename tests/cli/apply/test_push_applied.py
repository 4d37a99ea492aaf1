from tests.cli.apply.conftest import Files
from tests.cli.conftest import Ams

PUSHED = """
projects:
  PROJECT:
    members:
      PROJECT-bob: [consumer]
    topics:
      readings:
    subscriptions:
      pulled: {topic: readings, push: ~, access: []}
      posted:
        topic: readings
        access: [PROJECT-bob]
        push:
          type: http_endpoint
          pushEndpoint: https://pump.example/in
          maxMessages: 3
          authorizationHeader: {type: disabled}
          retryPolicy: {type: slowstart}
      chatted:
        topic: readings
        access: [PROJECT-bob]
        push: {type: mattermost, mattermostUrl: https://chat.example/hook, retryPolicy: {period: 500}}
"""


def test_push_is_set_changed_and_taken_back_and_keeps_its_worker(ams: Ams, files: Files) -> None:
    files.settle(PUSHED)
    assert ams("acl", "show", "subs/chatted").stdout.split() == ["USER", f"{files.project}-bob", "push_worker_0"]

    altered = files.settle(PUSHED.replace("maxMessages: 3", "maxMessages: 4").replace("period: 500", "period: 600"))
    pulled = "projects: {PROJECT: {subscriptions: {chatted: {topic: readings, push: ~}}}}"
    taken_back = files.settle(pulled)

    assert [line.split()[2] for line in altered.splitlines()] == [
        f"{files.project}/posted:",
        f"{files.project}/chatted:",
    ]
    assert taken_back == f"~ subscription {files.project}/chatted: push none\n"
    assert ams("acl", "show", "subs/chatted").stdout.split() == ["USER", f"{files.project}-bob"]
