"""The HTTP API as pure values: calls to send, answers to read (contract sections 5 to 15, and our own routes).

A call of any resource is here under its own name, as are the values that go over the wire; those of the certificate
service are in `ams.client.wire.authn`. This package depends on the wire only.
"""

from ams.client.wire.call import Call as Call
from ams.client.wire.issuers import *
from ams.client.wire.projects import *
from ams.client.wire.service import *
from ams.client.wire.subscriptions import *
from ams.client.wire.topics import *
from ams.client.wire.users import *
from ams.wire.identities import *
from ams.wire.messages import *
from ams.wire.projects import *
from ams.wire.push import MAX_STATES as MAX_STATES
from ams.wire.push import AuthorizationHeaderBody, NewSecret, PushConfigBody, PushReport, RetryPolicyBody
from ams.wire.push import PushAttempt as PushAttempt
from ams.wire.push import PushError as PushError
from ams.wire.schemas import *
from ams.wire.service import *
from ams.wire.subscriptions import OffsetAt as OffsetAt
from ams.wire.subscriptions import Offsets as Offsets
from ams.wire.users import *

# What the description of the API calls otherwise.
AuditEvent = Line
AuditEvents = Lines
AuthorizationHeader = AuthorizationHeaderBody
Grant = MembershipBody
NamedToken = Token
PushConfig = PushConfigBody
PushSecret = NewSecret
PushStatus = PushReport
RetryPolicy = RetryPolicyBody
UserDetails = UserBody
