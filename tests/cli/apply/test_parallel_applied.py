"""Parallel subscriptions that are declared: made, found as they are, changed, and never made something else."""

import json

from tests.cli.apply.conftest import Files
from tests.cli.conftest import Ams

DECLARED = """
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


def test_options_are_declared_changed_and_taken_back(ams: Ams, files: Files) -> None:
    files.settle(DECLARED)
    changed = files.settle(
        DECLARED.replace("maxDeliveryAttempts: 7", "maxDeliveryAttempts: 8").replace("{ttl: 86400s}", "~")
    )

    assert changed.startswith(f"~ subscription {files.project}/workers: ")
    found = json.loads(ams("subs", "show", "workers", "-o", "json").stdout)
    assert found["type"] == "parallel"
    assert found["retryPolicy"] == {"minimumBackoff": "1s", "maximumBackoff": "600s"}
    assert found["deadLetterPolicy"]["maxDeliveryAttempts"] == 8
    assert found["filter"] == 'attributes.site != "test"'
    assert "expirationPolicy" not in found
    assert "type" not in json.loads(ams("subs", "show", "usual", "-o", "json").stdout)
