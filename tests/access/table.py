"""The role table of the HTTP contract (3.4), typed in from the contract and not from the code.

Each line: number, action, scope (`project` when the path holds a project), default roles; `open` = fixed in code.
SA service_admin, PA project_admin, PU publisher, CO consumer, PW push_worker, MV metrics_viewer, AA argo_api_authn,
RA register_admin, AV admin_viewer.
"""

from typing import NamedTuple

SHORT = {
    "SA": "service_admin",
    "PA": "project_admin",
    "PU": "publisher",
    "CO": "consumer",
    "PW": "push_worker",
    "MV": "metrics_viewer",
    "AA": "argo_api_authn",
    "RA": "register_admin",
    "AV": "admin_viewer",
}
SELF = "self"
"""In a line: the user whom the path names, who needs no role."""

TABLE = """
 1 ams:metrics                      service  SA MV AV
 2 ams:healthStatus                 service  open
 3 ams:vaMetrics                    service  SA MV AV
 4 users:byToken                    service  SA PW
 5 users:byUUID                     service  SA AA
 6 users:list                       service  SA
 7 users:profile                    service  open
 8 users:usageReport                service  open
 9 users:show                       service  SA
10 users:refreshToken               service  SA
11 users:create                     service  SA
12 users:update                     service  SA
13 users:delete                     service  SA
14 registrations:newUser            service  SA RA
15 registrations:acceptNewUser      service  SA
16 registrations:declineNewUser     service  SA
17 registrations:delete             service  SA
18 registrations:show               service  SA
19 registrations:list               service  SA
20 projects:list                    service  SA
21 projects:metrics                 project  SA PA
22 projects:addUser                 project  SA PA
23 projects:removeUser              project  SA PA
24 projects:showUser                project  SA PA
25 projects:createUser              project  SA PA
26 projects:updateUser              project  SA PA
27 projects:listUsers               project  SA PA
28 projects:show                    project  SA PA
29 projects:create                  service  SA
30 projects:update                  project  SA PA
31 projects:delete                  project  SA PA
32 subscriptions:list               project  SA PA CO
33 subscriptions:listByTopic        project  SA PA
34 subscriptions:offsets            project  SA PA CO
35 subscriptions:timeToOffset       project  SA PA CO
36 subscriptions:acl                project  SA PA
37 subscriptions:metrics            project  SA PA CO
38 subscriptions:show               project  SA PA CO PW
39 subscriptions:create             project  SA PA
40 subscriptions:delete             project  SA PA
41 subscriptions:pull               project  SA PA CO PW
42 subscriptions:acknowledge        project  SA PA CO PW
43 subscriptions:verifyPushEndpoint project  SA PA
44 subscriptions:modifyAckDeadline  project  SA PA CO
45 subscriptions:modifyPushConfig   project  SA PA
46 subscriptions:modifyOffset       project  SA PA CO
47 subscriptions:modifyAcl          project  SA PA
48 topics:list                      project  SA PA PU
49 topics:acl                       project  SA PA
50 topics:metrics                   project  SA PA PU
51 topics:show                      project  SA PA PU
52 topics:create                    project  SA PA
53 topics:delete                    project  SA PA
54 topics:publish                   project  SA PA PU
55 topics:modifyAcl                 project  SA PA
56 topics:attachSchema              project  SA PA
57 topics:detachSchema              project  SA PA
58 schemas:validateMessage          project  SA PA
59 schemas:create                   project  SA PA
60 schemas:show                     project  SA PA
61 schemas:list                     project  SA PA
62 schemas:update                   project  SA PA
63 schemas:delete                   project  SA PA
64 version:list                     service  open
"""


class Line(NamedTuple):
    number: int
    action: str
    in_project: bool
    roles: frozenset[str]
    is_open: bool
    of_oneself: bool = False


def _line(text: str) -> Line:
    number, action, scope, *roles = text.split()
    is_open = roles == ["open"]
    return Line(
        int(number),
        action,
        scope == "project",
        frozenset() if is_open else frozenset(SHORT[role] for role in roles if role != SELF),
        is_open,
        SELF in roles,
    )


LINES = [_line(text) for text in TABLE.strip().splitlines()]

OWN_TABLE = """
65 subscriptions:seek               project  SA PA CO
66 subscriptions:doctor             project  SA PA CO
67 topics:offsets                   project  SA PA CO
68 topics:read                      project  SA PA CO
69 topics:modifyRetention           project  SA PA
70 projects:modifyRetention         project  SA PA
71 schemas:dryRun                   project  SA PA
72 service:doctor                   service  SA AV
73 subscriptions:rotatePushSecret   project  SA PA
74 push:lease                       service  PW
75 push:wait                        service  PW
76 subscriptions:pushStatus         project  SA PA CO PW
77 subscriptions:deadLetter         project  PW
78 audit:list                       service  SA
79 tokens:list                      service  SA self
80 tokens:show                      service  SA self
81 tokens:create                    service  SA self
82 tokens:revoke                    service  SA self
83 bindings:list                    service  SA self
84 bindings:create                  service  SA
85 bindings:delete                  service  SA
86 issuers:list                     service  SA
87 issuers:show                     service  SA
88 issuers:create                   service  SA
89 issuers:update                   service  SA
90 issuers:delete                   service  SA
91 subscriptions:update             project  SA PA
92 snapshots:list                   project  SA PA CO
93 snapshots:show                   project  SA PA CO
94 snapshots:create                 project  SA PA
95 snapshots:delete                 project  SA PA
96 subscriptions:nack               project  SA PA CO PW
97 subscriptions:detach             project  SA PA
98 subscriptions:extendLeases       project  PW
99 projects:watch                   project  SA PA PU CO
100 projects:history                project  SA PA PU CO
101 topics:timeToOffset             project  SA PA CO
102 schemas:revisions               project  SA PA
"""
OWN_LINES = [_line(text) for text in OWN_TABLE.strip().splitlines()]
"""Actions this service adds, typed in from docs/reference/http.md."""

# Contract 3.5 with A5 of 17.2: where the access list is asked, and for which role.
ACCESS_LISTS = {
    "topics:publish": "publisher",
    "topics:metrics": "publisher",
    "subscriptions:pull": "consumer",
    "subscriptions:metrics": "consumer",
    "subscriptions:acknowledge": "consumer",
    "subscriptions:offsets": "consumer",
    "subscriptions:modifyOffset": "consumer",
    "subscriptions:timeToOffset": "consumer",
    "subscriptions:modifyAckDeadline": "consumer",
}
