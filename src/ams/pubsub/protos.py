"""The types of `google.pubsub.v1` and what it uses, plain ones: their wrappers would cost more than the work."""

from typing import TYPE_CHECKING, Any

from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.protobuf import empty_pb2, timestamp_pb2
from google.pubsub_v1 import types

Message = Any  # a request or an answer

Empty: Any = empty_pb2.Empty
Timestamp: Any = timestamp_pb2.Timestamp
Policy: Any = policy_pb2.Policy
GetIamPolicyRequest: Any = iam_policy_pb2.GetIamPolicyRequest
SetIamPolicyRequest: Any = iam_policy_pb2.SetIamPolicyRequest
TestIamPermissionsRequest: Any = iam_policy_pb2.TestIamPermissionsRequest
TestIamPermissionsResponse: Any = iam_policy_pb2.TestIamPermissionsResponse

# Every message of the package under its own name.
_Wrapper: Any = type(types.Topic)
globals().update({name: each.pb() for name, each in vars(types).items() if isinstance(each, _Wrapper)})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a type of `google.pubsub.v1`, `Topic` and so on."""
