"""The schema of the wire: what is committed is what the tool makes, and its numbers are those of push contract 2."""

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor

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


FIELDS = {
    "ActivateSubscriptionRequest": "1 subscription MESSAGE",
    "ActivateSubscriptionResponse": "1 message STRING",
    "DeactivateSubscriptionRequest": "1 full_name STRING",
    "DeactivateSubscriptionResponse": "1 message STRING",
    "StatusRequest": "",
    "StatusResponse": "",
    "SubscriptionStatusRequest": "1 full_name STRING",
    "SubscriptionStatusResponse": "1 status STRING",
    "Subscription": "1 full_name STRING, 2 full_topic STRING, 4 push_config MESSAGE",
    "PushConfig": "1 push_endpoint STRING, 2 retry_policy MESSAGE, 3 max_messages INT64, 4 authorization_header STRING,"
    " 5 type ENUM, 6 mattermost_url STRING, 7 mattermost_username STRING, 8 mattermost_channel STRING,"
    " 9 base_64_decode BOOL",
    "RetryPolicy": "1 type STRING, 2 period UINT32",
}
TYPES = {value: name.removeprefix("TYPE_") for name, value in vars(FieldDescriptor).items() if name.startswith("TYPE_")}


def test_messages_have_the_fields_of_the_contract() -> None:
    described = pb.DESCRIPTOR.message_types_by_name

    assert {
        name: ", ".join(f"{field.number} {field.name} {TYPES[field.type]}" for field in message.fields)
        for name, message in described.items()
    } == FIELDS


def test_the_service_has_no_package_and_the_methods_of_the_contract() -> None:
    service = pb.DESCRIPTOR.services_by_name["PushService"]

    assert service.full_name == "PushService"
    assert {method.name for method in service.methods} == {
        "ActivateSubscription", "DeactivateSubscription", "Status", "SubscriptionStatus",
    }  # fmt: skip
    assert dict(pb.PushType.items()) == {"HTTP_ENDPOINT": 0, "MATTERMOST": 1}
