"""The HTTP API as pure values: calls to send, answers to read (contract sections 5 to 15, and our own routes).

Calls of every resource and the values that go over the wire are here under their own names; the calls of the
certificate service are in `ams.client.wire.authn`. This package depends on the wire only.
"""

from ams.client.wire.call import Call as Call
from ams.client.wire.call import Versioned as Versioned
from ams.client.wire.projects import *
from ams.client.wire.subscriptions import *
from ams.client.wire.topics import *
from ams.client.wire.users import *
from ams.wire.messages import *
from ams.wire.projects import *
from ams.wire.push import MAX_STATES as MAX_STATES
from ams.wire.push import AuthorizationHeaderBody, NewSecret, PushConfigBody, PushReport, RetryPolicyBody
from ams.wire.push import PushAttempt as PushAttempt
from ams.wire.push import PushError as PushError
from ams.wire.push import WorkerState as WorkerState
from ams.wire.service import *
from ams.wire.service import Line, Lines
from ams.wire.subscriptions import DeadLetterPolicyBody, ExpirationPolicyBody, RetryBackoffBody
from ams.wire.subscriptions import OffsetAt as OffsetAt
from ams.wire.subscriptions import Offsets as Offsets
from ams.wire.subscriptions import ParallelOptions as ParallelOptions
from ams.wire.subscriptions import Snapshot as Snapshot
from ams.wire.subscriptions import Snapshots as Snapshots
from ams.wire.subscriptions import SubscriptionChanges as SubscriptionChanges
from ams.wire.users import *
from ams.wire.users import MembershipBody, Token, UserBody

# Names that differ from those in the description of the API.
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
