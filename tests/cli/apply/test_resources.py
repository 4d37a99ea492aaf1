"""Each kind of resource is applied: made, found as it is, changed, and taken back."""

from pathlib import Path

from tests.cli.apply.conftest import Files
from tests.cli.conftest import Ams

PARALLEL = """
projects:
  PROJECT:
    topics:
      jobs:
      dead:
    subscriptions:
      usual: {topic: jobs, type: ordered}
      workers:
        topic: jobs
        type: parallel
        ackDeadline: 30
        retryPolicy: {minimumBackoff: 1s}
        deadLetterPolicy: {deadLetterTopic: dead, maxDeliveryAttempts: 7}
        filter: attributes.site != "test"
        enableMessageOrdering: true
        expirationPolicy: {ttl: 86400s}
"""


def test_options_of_parallel_subscriptions_are_declared_changed_and_taken_back(ams: Ams, files: Files) -> None:
    files.settle(PARALLEL)
    changed = files.settle(
        PARALLEL.replace("maxDeliveryAttempts: 7", "maxDeliveryAttempts: 8").replace("{ttl: 86400s}", "~")
    )

    assert changed.startswith(f"~ subscription {files.project}/workers: ")
    found = ams.json("subs", "show", "workers")
    assert found["type"] == "parallel"
    assert found["retryPolicy"] == {"minimumBackoff": "1s", "maximumBackoff": "600s"}
    assert found["deadLetterPolicy"]["maxDeliveryAttempts"] == 8
    assert found["filter"] == 'attributes.site != "test"'
    assert "expirationPolicy" not in found
    assert "type" not in ams.json("subs", "show", "usual")


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


KEPT = """
projects:
  PROJECT:
    retention: 30d
    topics:
      readings: {retention: 12h}
      plain:
"""


def test_retention_is_set_changed_and_given_back(ams: Ams, files: Files) -> None:
    files.settle(KEPT)
    assert ams.json("topics", "show", "readings")["retentionSeconds"] == 43_200

    altered = files.settle(KEPT.replace("30d", "7d").replace("12h", "default"))

    assert altered.splitlines() == [
        f"~ project {files.project}: retention 604800",
        f"~ topic {files.project}/readings: retention 0",
    ]
    assert "retentionSeconds" not in ams.json("topics", "show", "readings")


CHECKED = """
projects:
  PROJECT:
    schemas:
      reading: {type: json, schema: {type: object, required: [celsius]}, attributes: {required: [unit]}}
      weight: {type: avro, file: weight.avsc}
      unit: {attributes: {values: {unit: [C, K]}}}
    topics:
      readings: {schema: reading}
      weights: {schema: weight}
      plain: {schema: ~}
"""


def test_schemas_are_made_attached_changed_detached_and_pruned(ams: Ams, files: Files, tmp_path: Path) -> None:
    (tmp_path / "weight.avsc").write_text('{"type": "int"}')
    files.settle(CHECKED)
    refused = ams("publish", "readings", "--data", "{}")
    changed = CHECKED.replace("celsius", "kelvin").replace(", attributes: {required: [unit]}", "")
    changed = changed.replace("{schema: weight}", "{schema: ~}").replace("plain: {schema: ~}", "plain: {schema: unit}")

    altered = files.settle(changed)

    assert "celsius is required" in refused.stderr
    assert altered.splitlines() == [
        f"~ schema {files.project}/reading: schema {{...}}, attributes none",
        f"~ topic {files.project}/weights: schema none",
        f"~ topic {files.project}/plain: schema unit",
    ]
    assert ams("publish", "readings", "--data", '{"kelvin": 300}').returncode == 0

    less = "projects: {PROJECT: {schemas: {weight: {type: avro, file: weight.avsc}}, topics: {weights: }}}"
    pruned = files.settle(less, "--prune")
    assert [line.split()[1] for line in pruned.splitlines()] == ["topic", "topic", "schema", "schema"]
