"""The schema of the wire: what is committed is what the tool makes, and its numbers are those of push contract 2."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor as F

from ams.push.rpc import push_service_pb2 as pb

ROOT = Path(__file__).parents[3]
FOLDER = Path("ams/push/rpc")


def test_the_generated_files_are_what_the_tool_makes_of_the_schema(tmp_path: Path) -> None:
    schema = str(FOLDER / "push_service.proto")
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-Isrc", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}",
         str(Path("src") / schema)],
        cwd=ROOT, check=True, timeout=60,
    )  # fmt: skip

    for name in ("push_service_pb2.py", "push_service_pb2.pyi"):
        assert (tmp_path / FOLDER / name).read_text() == (ROOT / "src" / FOLDER / name).read_text(), "run make proto"


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("ActivateSubscriptionRequest", {(1, "subscription", F.TYPE_MESSAGE)}),
        ("ActivateSubscriptionResponse", {(1, "message", F.TYPE_STRING)}),
        ("DeactivateSubscriptionRequest", {(1, "full_name", F.TYPE_STRING)}),
        ("DeactivateSubscriptionResponse", {(1, "message", F.TYPE_STRING)}),
        ("StatusRequest", set()),
        ("StatusResponse", set()),
        ("SubscriptionStatusRequest", {(1, "full_name", F.TYPE_STRING)}),
        ("SubscriptionStatusResponse", {(1, "status", F.TYPE_STRING)}),
        (
            "Subscription",
            {(1, "full_name", F.TYPE_STRING), (2, "full_topic", F.TYPE_STRING), (4, "push_config", F.TYPE_MESSAGE)},
        ),
        (
            "PushConfig",
            {
                (1, "push_endpoint", F.TYPE_STRING), (2, "retry_policy", F.TYPE_MESSAGE),
                (3, "max_messages", F.TYPE_INT64), (4, "authorization_header", F.TYPE_STRING),
                (5, "type", F.TYPE_ENUM), (6, "mattermost_url", F.TYPE_STRING),
                (7, "mattermost_username", F.TYPE_STRING), (8, "mattermost_channel", F.TYPE_STRING),
                (9, "base_64_decode", F.TYPE_BOOL),
            },
        ),
        ("RetryPolicy", {(1, "type", F.TYPE_STRING), (2, "period", F.TYPE_UINT32)}),
    ],
)  # fmt: skip
def test_messages_have_the_fields_of_the_contract(message: str, fields: set[tuple[int, str, int]]) -> None:
    described = pb.DESCRIPTOR.message_types_by_name[message]

    assert {(field.number, field.name, field.type) for field in described.fields} == fields


def test_the_service_has_no_package_and_the_methods_of_the_contract() -> None:
    service = pb.DESCRIPTOR.services_by_name["PushService"]

    assert service.full_name == "PushService"
    assert {method.name for method in service.methods} == {
        "ActivateSubscription", "DeactivateSubscription", "Status", "SubscriptionStatus",
    }  # fmt: skip
    assert dict(pb.PushType.items()) == {"HTTP_ENDPOINT": 0, "MATTERMOST": 1}
