"""The HTTP API as pure values: calls to send, answers to read (contract sections 5 to 15, and our own routes).

A call of any resource is here under its own name, as are the values that go over the wire; those of the certificate
service are in `ams.client.wire.authn`. This package depends on the wire only.
"""

from ams.client.wire.call import Call as Call
from ams.client.wire.call import Versioned as Versioned
from ams.client.wire.issuers import create_binding as create_binding
from ams.client.wire.issuers import create_issuer as create_issuer
from ams.client.wire.issuers import delete_binding as delete_binding
from ams.client.wire.issuers import delete_issuer as delete_issuer
from ams.client.wire.issuers import get_issuer as get_issuer
from ams.client.wire.issuers import list_bindings as list_bindings
from ams.client.wire.issuers import list_issuers as list_issuers
from ams.client.wire.issuers import update_issuer as update_issuer
from ams.client.wire.projects import add_member as add_member
from ams.client.wire.projects import create_member as create_member
from ams.client.wire.projects import create_project as create_project
from ams.client.wire.projects import delete_project as delete_project
from ams.client.wire.projects import get_member as get_member
from ams.client.wire.projects import get_project as get_project
from ams.client.wire.projects import get_project_quotas as get_project_quotas
from ams.client.wire.projects import list_members as list_members
from ams.client.wire.projects import list_projects as list_projects
from ams.client.wire.projects import modify_project_quotas as modify_project_quotas
from ams.client.wire.projects import modify_project_retention as modify_project_retention
from ams.client.wire.projects import refresh_member_token as refresh_member_token
from ams.client.wire.projects import remove_member as remove_member
from ams.client.wire.projects import update_member as update_member
from ams.client.wire.projects import update_project as update_project
from ams.client.wire.service import diagnose_service as diagnose_service
from ams.client.wire.service import get_console as get_console
from ams.client.wire.service import get_project_metrics as get_project_metrics
from ams.client.wire.service import get_service_metrics as get_service_metrics
from ams.client.wire.service import get_status as get_status
from ams.client.wire.service import get_subscription_metrics as get_subscription_metrics
from ams.client.wire.service import get_topic_metrics as get_topic_metrics
from ams.client.wire.service import get_usage_report as get_usage_report
from ams.client.wire.service import get_va_metrics as get_va_metrics
from ams.client.wire.service import get_version as get_version
from ams.client.wire.service import list_events as list_events
from ams.client.wire.snapshots import create_snapshot as create_snapshot
from ams.client.wire.snapshots import delete_snapshot as delete_snapshot
from ams.client.wire.snapshots import get_snapshot as get_snapshot
from ams.client.wire.snapshots import list_snapshots as list_snapshots
from ams.client.wire.subscriptions import PushLease as PushLease
from ams.client.wire.subscriptions import PushTarget as PushTarget
from ams.client.wire.subscriptions import Subscription as Subscription
from ams.client.wire.subscriptions import Subscriptions as Subscriptions
from ams.client.wire.subscriptions import ack_id as ack_id
from ams.client.wire.subscriptions import acknowledge as acknowledge
from ams.client.wire.subscriptions import change_subscription_acl as change_subscription_acl
from ams.client.wire.subscriptions import create_subscription as create_subscription
from ams.client.wire.subscriptions import dead_letter as dead_letter
from ams.client.wire.subscriptions import delete_subscription as delete_subscription
from ams.client.wire.subscriptions import detach_subscription as detach_subscription
from ams.client.wire.subscriptions import diagnose as diagnose
from ams.client.wire.subscriptions import extend as extend
from ams.client.wire.subscriptions import extend_leases as extend_leases
from ams.client.wire.subscriptions import get_offsets as get_offsets
from ams.client.wire.subscriptions import get_push_status as get_push_status
from ams.client.wire.subscriptions import get_subscription as get_subscription
from ams.client.wire.subscriptions import get_subscription_acl as get_subscription_acl
from ams.client.wire.subscriptions import lease_push as lease_push
from ams.client.wire.subscriptions import list_subscriptions as list_subscriptions
from ams.client.wire.subscriptions import modify_ack_deadline as modify_ack_deadline
from ams.client.wire.subscriptions import modify_offset as modify_offset
from ams.client.wire.subscriptions import modify_push_config as modify_push_config
from ams.client.wire.subscriptions import modify_subscription_acl as modify_subscription_acl
from ams.client.wire.subscriptions import nack as nack
from ams.client.wire.subscriptions import pull as pull
from ams.client.wire.subscriptions import rotate_push_secret as rotate_push_secret
from ams.client.wire.subscriptions import seek as seek
from ams.client.wire.subscriptions import time_to_offset as time_to_offset
from ams.client.wire.subscriptions import update_subscription as update_subscription
from ams.client.wire.subscriptions import verify_push_endpoint as verify_push_endpoint
from ams.client.wire.topics import attach_schema as attach_schema
from ams.client.wire.topics import change_topic_acl as change_topic_acl
from ams.client.wire.topics import create_schema as create_schema
from ams.client.wire.topics import create_topic as create_topic
from ams.client.wire.topics import delete_schema as delete_schema
from ams.client.wire.topics import delete_topic as delete_topic
from ams.client.wire.topics import detach_schema as detach_schema
from ams.client.wire.topics import dry_run as dry_run
from ams.client.wire.topics import get_schema as get_schema
from ams.client.wire.topics import get_topic as get_topic
from ams.client.wire.topics import get_topic_acl as get_topic_acl
from ams.client.wire.topics import get_topic_offsets as get_topic_offsets
from ams.client.wire.topics import list_revisions as list_revisions
from ams.client.wire.topics import list_schemas as list_schemas
from ams.client.wire.topics import list_topic_subscriptions as list_topic_subscriptions
from ams.client.wire.topics import list_topics as list_topics
from ams.client.wire.topics import modify_topic_acl as modify_topic_acl
from ams.client.wire.topics import modify_topic_retention as modify_topic_retention
from ams.client.wire.topics import publish as publish
from ams.client.wire.topics import publish_encoded as publish_encoded
from ams.client.wire.topics import read_topic as read_topic
from ams.client.wire.topics import topic_time_to_offset as topic_time_to_offset
from ams.client.wire.topics import update_schema as update_schema
from ams.client.wire.topics import validate_datum as validate_datum
from ams.client.wire.topics import validate_document as validate_document
from ams.client.wire.topics import validate_message as validate_message
from ams.client.wire.users import accept_registration as accept_registration
from ams.client.wire.users import create_token as create_token
from ams.client.wire.users import create_user as create_user
from ams.client.wire.users import decline_registration as decline_registration
from ams.client.wire.users import delete_registration as delete_registration
from ams.client.wire.users import delete_user as delete_user
from ams.client.wire.users import get_profile as get_profile
from ams.client.wire.users import get_registration as get_registration
from ams.client.wire.users import get_token as get_token
from ams.client.wire.users import get_user as get_user
from ams.client.wire.users import get_user_by_token as get_user_by_token
from ams.client.wire.users import get_user_by_uuid as get_user_by_uuid
from ams.client.wire.users import list_registrations as list_registrations
from ams.client.wire.users import list_tokens as list_tokens
from ams.client.wire.users import list_users as list_users
from ams.client.wire.users import refresh_token as refresh_token
from ams.client.wire.users import register as register
from ams.client.wire.users import revoke_token as revoke_token
from ams.client.wire.users import update_user as update_user
from ams.wire.messages import Message as Message
from ams.wire.messages import Published as Published
from ams.wire.messages import PulledMessage as PulledMessage
from ams.wire.messages import ReadMessage as ReadMessage
from ams.wire.messages import ReceivedMessage as ReceivedMessage
from ams.wire.messages import message as message
from ams.wire.projects import Acl as Acl
from ams.wire.projects import DryRun as DryRun
from ams.wire.projects import Project as Project
from ams.wire.projects import ProjectQuotas as ProjectQuotas
from ams.wire.projects import Projects as Projects
from ams.wire.projects import RefusedMessage as RefusedMessage
from ams.wire.projects import Revision as Revision
from ams.wire.projects import Revisions as Revisions
from ams.wire.projects import Schema as Schema
from ams.wire.projects import Schemas as Schemas
from ams.wire.projects import Topic as Topic
from ams.wire.projects import TopicOffsets as TopicOffsets
from ams.wire.projects import Topics as Topics
from ams.wire.projects import Validated as Validated
from ams.wire.push import MAX_STATES as MAX_STATES
from ams.wire.push import AuthorizationHeaderBody, NewSecret, PushConfigBody, PushReport, RetryPolicyBody
from ams.wire.push import PushAttempt as PushAttempt
from ams.wire.push import PushError as PushError
from ams.wire.service import Diagnosis as Diagnosis
from ams.wire.service import Finding as Finding
from ams.wire.service import Line, Lines
from ams.wire.service import Metric as Metric
from ams.wire.service import Metrics as Metrics
from ams.wire.service import ProjectUsage as ProjectUsage
from ams.wire.service import ServiceDiagnosis as ServiceDiagnosis
from ams.wire.service import Standing as Standing
from ams.wire.service import UsageReport as UsageReport
from ams.wire.service import VaMetrics as VaMetrics
from ams.wire.subscriptions import DeadLetterPolicyBody, ExpirationPolicyBody, RetryBackoffBody
from ams.wire.subscriptions import OffsetAt as OffsetAt
from ams.wire.subscriptions import Offsets as Offsets
from ams.wire.subscriptions import ParallelOptions as ParallelOptions
from ams.wire.subscriptions import Snapshot as Snapshot
from ams.wire.subscriptions import Snapshots as Snapshots
from ams.wire.subscriptions import SubscriptionChanges as SubscriptionChanges
from ams.wire.users import Binding as Binding
from ams.wire.users import Bindings as Bindings
from ams.wire.users import Issuer as Issuer
from ams.wire.users import IssuerKeys as IssuerKeys
from ams.wire.users import Issuers as Issuers
from ams.wire.users import Membership as Membership
from ams.wire.users import MembershipBody, Token, UserBody
from ams.wire.users import NamedTokens as NamedTokens
from ams.wire.users import Registration as Registration
from ams.wire.users import Registrations as Registrations
from ams.wire.users import Right as Right
from ams.wire.users import RoleRule as RoleRule
from ams.wire.users import User as User
from ams.wire.users import Users as Users

# What the description of the API calls otherwise.
AuditEvent = Line
AuditEvents = Lines
DeadLetterPolicy = DeadLetterPolicyBody
ExpirationPolicy = ExpirationPolicyBody
RetryBackoff = RetryBackoffBody
AuthorizationHeader = AuthorizationHeaderBody
Grant = MembershipBody
NamedToken = Token
PushConfig = PushConfigBody
PushSecret = NewSecret
PushStatus = PushReport
RetryPolicy = RetryPolicyBody
UserDetails = UserBody
