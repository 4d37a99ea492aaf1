"""The types of `google.pubsub.v1` and what it uses, plain ones: their wrappers would cost more than the work."""

from typing import Any

from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.protobuf import duration_pb2, empty_pb2, timestamp_pb2
from google.pubsub_v1 import types

Message = Any
"""A request or an answer."""


def _plain(wrapper: Any) -> Any:
    return wrapper.pb()


Topic = _plain(types.Topic)
UpdateTopicRequest = _plain(types.UpdateTopicRequest)
PublishRequest = _plain(types.PublishRequest)
PublishResponse = _plain(types.PublishResponse)
GetTopicRequest = _plain(types.GetTopicRequest)
DeleteTopicRequest = _plain(types.DeleteTopicRequest)
ListTopicsRequest = _plain(types.ListTopicsRequest)
ListTopicsResponse = _plain(types.ListTopicsResponse)
ListTopicSubscriptionsRequest = _plain(types.ListTopicSubscriptionsRequest)
ListTopicSubscriptionsResponse = _plain(types.ListTopicSubscriptionsResponse)
ListTopicSnapshotsRequest = _plain(types.ListTopicSnapshotsRequest)
ListTopicSnapshotsResponse = _plain(types.ListTopicSnapshotsResponse)
DetachSubscriptionRequest = _plain(types.DetachSubscriptionRequest)
DetachSubscriptionResponse = _plain(types.DetachSubscriptionResponse)

PubsubMessage = _plain(types.PubsubMessage)
ReceivedMessage = _plain(types.ReceivedMessage)

Subscription = _plain(types.Subscription)
GetSubscriptionRequest = _plain(types.GetSubscriptionRequest)
UpdateSubscriptionRequest = _plain(types.UpdateSubscriptionRequest)
ListSubscriptionsRequest = _plain(types.ListSubscriptionsRequest)
ListSubscriptionsResponse = _plain(types.ListSubscriptionsResponse)
DeleteSubscriptionRequest = _plain(types.DeleteSubscriptionRequest)
ModifyPushConfigRequest = _plain(types.ModifyPushConfigRequest)
ModifyAckDeadlineRequest = _plain(types.ModifyAckDeadlineRequest)
AcknowledgeRequest = _plain(types.AcknowledgeRequest)
PullRequest = _plain(types.PullRequest)
PullResponse = _plain(types.PullResponse)
StreamingPullRequest = _plain(types.StreamingPullRequest)
StreamingPullResponse = _plain(types.StreamingPullResponse)

Snapshot = _plain(types.Snapshot)
CreateSnapshotRequest = _plain(types.CreateSnapshotRequest)
GetSnapshotRequest = _plain(types.GetSnapshotRequest)
UpdateSnapshotRequest = _plain(types.UpdateSnapshotRequest)
ListSnapshotsRequest = _plain(types.ListSnapshotsRequest)
ListSnapshotsResponse = _plain(types.ListSnapshotsResponse)
DeleteSnapshotRequest = _plain(types.DeleteSnapshotRequest)
SeekRequest = _plain(types.SeekRequest)
SeekResponse = _plain(types.SeekResponse)

Schema = _plain(types.Schema)
SchemaSettings = _plain(types.SchemaSettings)
CreateSchemaRequest = _plain(types.CreateSchemaRequest)
GetSchemaRequest = _plain(types.GetSchemaRequest)
ListSchemasRequest = _plain(types.ListSchemasRequest)
ListSchemasResponse = _plain(types.ListSchemasResponse)
ListSchemaRevisionsRequest = _plain(types.ListSchemaRevisionsRequest)
ListSchemaRevisionsResponse = _plain(types.ListSchemaRevisionsResponse)
CommitSchemaRequest = _plain(types.CommitSchemaRequest)
RollbackSchemaRequest = _plain(types.RollbackSchemaRequest)
DeleteSchemaRevisionRequest = _plain(types.DeleteSchemaRevisionRequest)
DeleteSchemaRequest = _plain(types.DeleteSchemaRequest)
ValidateSchemaRequest = _plain(types.ValidateSchemaRequest)
ValidateSchemaResponse = _plain(types.ValidateSchemaResponse)
ValidateMessageRequest = _plain(types.ValidateMessageRequest)
ValidateMessageResponse = _plain(types.ValidateMessageResponse)

Empty: Any = empty_pb2.Empty
Duration: Any = duration_pb2.Duration
Timestamp: Any = timestamp_pb2.Timestamp
Policy: Any = policy_pb2.Policy
GetIamPolicyRequest: Any = iam_policy_pb2.GetIamPolicyRequest
SetIamPolicyRequest: Any = iam_policy_pb2.SetIamPolicyRequest
TestIamPermissionsRequest: Any = iam_policy_pb2.TestIamPermissionsRequest
TestIamPermissionsResponse: Any = iam_policy_pb2.TestIamPermissionsResponse
