"""The routes of the API behind the hot routes: a file for each resource, joined here into one table."""

from ams.access.admission import Admission
from ams.http.routes.issuers import BindingRoutes, IssuerRoutes
from ams.http.routes.projects import MemberRoutes, ProjectRoutes
from ams.http.routes.push import DeadLetterRoutes, PushRoutes, PushStatusRoutes
from ams.http.routes.push_lease import LeaseRoutes, WaitRoutes
from ams.http.routes.reading import ReadingRoutes
from ams.http.routes.schemas import SchemaRoutes
from ams.http.routes.service import AuditRoutes, DoctorRoutes, MetricsRoutes, ServiceRoutes
from ams.http.routes.subscriptions import OffsetRoutes, SubscriptionRoutes
from ams.http.routes.topics import RetentionRoutes, TopicRoutes
from ams.http.routes.users import RegistrationRoutes, TokenRoutes, UserRoutes
from ams.http.routing import Row
from ams.service.about import About
from ams.service.delivering import Deliverer
from ams.service.doctor import Doctor
from ams.service.issuers import Bindings, Issuers
from ams.service.members import Members
from ams.service.metrics import Metrics, Usage
from ams.service.projects import Projects
from ams.service.push.assignment import Assignment
from ams.service.push.dead_letters import DeadLetters
from ams.service.push.pushing import Pushing, PushSecrets, PushWatcher
from ams.service.reading import RangeReader
from ams.service.retention import Retention
from ams.service.schemas import Schemas
from ams.service.seeking import Seeker
from ams.service.service_doctor import ServiceDoctor
from ams.service.subscriptions import Subscriptions
from ams.service.tokens import Tokens
from ams.service.topics import Topics
from ams.service.users import Registrations, Users
from ams.storage.audit.records import AuditRecords


def rows(
    *,
    admission: Admission,
    audit: AuditRecords,
    projects: Projects,
    members: Members,
    topics: Topics,
    subscriptions: Subscriptions,
    schemas: Schemas,
    seeker: Seeker,
    reader: RangeReader,
    retention: Retention,
    doctor: Doctor,
    service_doctor: ServiceDoctor,
    users: Users,
    tokens: Tokens,
    registrations: Registrations,
    pushing: Pushing,
    push_secrets: PushSecrets,
    assignment: Assignment,
    deliverer: Deliverer,
    watcher: PushWatcher,
    dead_letters: DeadLetters,
    bindings: Bindings,
    issuers: Issuers,
    about: About,
    metrics: Metrics,
    usage: Usage,
) -> list[Row]:
    """Return every route but the hot ones, in the order they are tried: verbs before the plain name (contract 1.3)."""
    return [
        *ServiceRoutes(about).rows(),
        *AuditRoutes(audit).rows(),
        *MetricsRoutes(metrics, usage).rows(),
        *UserRoutes(users, admission).rows(),
        *TokenRoutes(tokens).rows(),
        *BindingRoutes(bindings).rows(),
        *IssuerRoutes(issuers).rows(),
        *RegistrationRoutes(registrations).rows(),
        *MemberRoutes(members).rows(),
        *OffsetRoutes(seeker).rows(),
        *DoctorRoutes(doctor, service_doctor).rows(),
        *PushRoutes(pushing, push_secrets).rows(),
        *PushStatusRoutes(watcher).rows(),
        *LeaseRoutes(assignment, pushing).rows(),
        *WaitRoutes(deliverer, pushing).rows(),
        *DeadLetterRoutes(dead_letters).rows(),
        *SubscriptionRoutes(subscriptions, pushing).rows(),
        *ReadingRoutes(reader).rows(),
        *RetentionRoutes(retention).rows(),
        *SchemaRoutes(schemas).rows(),
        *TopicRoutes(topics).rows(),
        *ProjectRoutes(projects).rows(),
    ]
