"""The rooms of the API behind the hot routes: one file per resource, joined here into one table."""

from ams.about import About
from ams.access.admission import Admission
from ams.bindings import Bindings
from ams.dead_letters import DeadLetters
from ams.delivering import Deliverer
from ams.doctor import Doctor
from ams.http.routes.audit import AuditRoutes
from ams.http.routes.bindings import BindingRoutes
from ams.http.routes.dead_letters import DeadLetterRoutes
from ams.http.routes.doctor import DoctorRoutes
from ams.http.routes.issuers import IssuerRoutes
from ams.http.routes.members import MemberRoutes
from ams.http.routes.metrics import MetricsRoutes
from ams.http.routes.offsets import OffsetRoutes
from ams.http.routes.projects import ProjectRoutes
from ams.http.routes.push import PushRoutes
from ams.http.routes.push_lease import LeaseRoutes
from ams.http.routes.push_status import PushStatusRoutes
from ams.http.routes.push_wait import WaitRoutes
from ams.http.routes.reading import ReadingRoutes
from ams.http.routes.registrations import RegistrationRoutes
from ams.http.routes.retention import RetentionRoutes
from ams.http.routes.schemas import SchemaRoutes
from ams.http.routes.service import ServiceRoutes
from ams.http.routes.subscriptions import SubscriptionRoutes
from ams.http.routes.tokens import TokenRoutes
from ams.http.routes.topics import TopicRoutes
from ams.http.routes.users import UserRoutes
from ams.http.routing import Row
from ams.issuers import Issuers
from ams.leasing import Leasing
from ams.members import Members
from ams.metrics import Metrics
from ams.projects import Projects
from ams.push_secrets import PushSecrets
from ams.push_watching import PushWatcher
from ams.pushing import Pushing
from ams.reading import RangeReader
from ams.registrations import Registrations
from ams.retention import Retention
from ams.schemas import Schemas
from ams.seeking import Seeker
from ams.service_doctor import ServiceDoctor
from ams.storage.audit.records import AuditRecords
from ams.subscriptions import Subscriptions
from ams.tokens import Tokens
from ams.topics import Topics
from ams.usage import Usage
from ams.users import Users


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
    leasing: Leasing,
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
        *LeaseRoutes(leasing, pushing).rows(),
        *WaitRoutes(deliverer, pushing).rows(),
        *DeadLetterRoutes(dead_letters).rows(),
        *SubscriptionRoutes(subscriptions, pushing).rows(),
        *ReadingRoutes(reader).rows(),
        *RetentionRoutes(retention).rows(),
        *SchemaRoutes(schemas).rows(),
        *TopicRoutes(topics).rows(),
        *ProjectRoutes(projects).rows(),
    ]
