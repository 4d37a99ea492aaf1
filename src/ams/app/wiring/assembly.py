"""Assembly: use cases on the engines, the application on the use cases, and links to other nodes."""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from ams.access.admission import Admission
from ams.access.permissions import RoleTable
from ams.access.rates import ConnectionSlots, ProjectSlots, QuotaSlots, Rates
from ams.app.wiring.engines import Engines
from ams.app.wiring.identity import Identity, Trusted, identity_of
from ams.app.wiring.push import Push, Reach, push_of
from ams.cluster.lease_table import PARALLEL, Duty, Holder, LeaseTable
from ams.cluster.ownership import Ownership, SharedOwnership
from ams.core.clock import Milliseconds
from ams.core.names import SubscriptionId, new_uuid
from ams.core.quotas import STREAMS, WAITING_PULLS
from ams.core.rate import LoginLimit
from ams.core.settings import Settings
from ams.http.app import App
from ams.http.audit import SERVICE, Auditor
from ams.http.console import Console
from ams.http.fast_lane import Lane
from ams.http.forwarding import Forwarder
from ams.http.hot_routes import FastRoutes, RequestGate
from ams.http.limits import Bodies, affordable_bytes
from ams.http.routes.issuers import BindingRoutes, IssuerRoutes
from ams.http.routes.parallel import SnapshotRoutes
from ams.http.routes.projects import MemberRoutes, ProjectRoutes, RetentionRoutes, TopicRoutes
from ams.http.routes.push import DeliveryRoutes, PushIdentityRoutes, PushRoutes
from ams.http.routes.reading import ReadingRoutes, WatchRoutes
from ams.http.routes.schemas import SchemaRoutes
from ams.http.routes.service import AuditRoutes, DoctorRoutes, ServiceRoutes
from ams.http.routes.subscriptions import OffsetRoutes, SubscriptionRoutes
from ams.http.routes.users import RegistrationRoutes, TokenRoutes, UserRoutes
from ams.http.routing import Handler, bind_handlers
from ams.outgoing.address_guard import ALL_NETWORKS, Guard, networks, trust
from ams.outgoing.client import HttpClient
from ams.service.dead_letters import DeadLetters
from ams.service.delivery import Deliverer, UnreadAnswers
from ams.service.doctor import Doctor
from ams.service.history import MetricsHistory
from ams.service.issuers import IdentityBindings
from ams.service.live_views import Live
from ams.service.metrics import Metrics, Usage
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.parallel.metrics import ParallelMetrics
from ams.service.parallel.settlement import LeaseRequests
from ams.service.projects import Members, Projects, QuotaUse
from ams.service.publishing import Publisher
from ams.service.push.configurations import PushSecrets, PushWatcher
from ams.service.ranges import RangeReader
from ams.service.retention import Losses, LossTotal, Retention
from ams.service.schemas import Schemas
from ams.service.service_doctor import SINGLE_PROCESS_REMEDIES, Remedies, ServiceDoctor, ServiceInfo, cluster_remedies
from ams.service.stored_bytes import StoredBytes, needed_offsets
from ams.service.subscription_offsets import Seeker, Snapshots
from ams.service.subscriptions import Expiry, Subscriptions
from ams.service.tallies import Counting, Counts
from ams.service.topics import Topics
from ams.service.users import Registrations, Tokens, TokenUses, Users
from ams.service.validators import Validators
from ams.storage.audit.trail import FailedLogins, Trail
from ams.storage.cursors.acks import CursorStore
from ams.storage.folder import Folder
from ams.storage.log.base import Log
from ams.storage.log.embedded import EmbeddedLog
from ams.storage.registry.registry import Registry
from ams.validation.long_checks import LongChecks
from ams.workers import Pool

CONNECT_SECONDS = 1.0  # to another node; slower ones count as down
ANSWER_SECONDS = 6.0  # for another node's answer, in addition to a pull's wait: clients give up at ten
MESSAGE_BYTES = 2048  # of a message in an answer, in addition to its content: id, time, ack id


@dataclass(frozen=True, slots=True)
class Nodes:
    """This node and the others."""

    ownership: Ownership
    forwarder: Forwarder | None  # None without other nodes
    name: str = ""  # of this node, with other nodes


@dataclass(frozen=True, slots=True)
class UseCases:
    """Use cases shared by several surfaces."""

    topics: Topics
    publisher: Publisher
    retention: Retention
    subscriptions: Subscriptions
    snapshots: Snapshots
    seeker: Seeker
    schemas: Schemas
    projects: Projects
    reader: RangeReader
    push_watcher: PushWatcher
    live: Live
    history: MetricsHistory


@dataclass(frozen=True, slots=True)
class MessageFlow:
    """Parts of a message's path from publish to acknowledgement."""

    counts: Counts
    counting: Counting
    workers: Pool
    validators: Validators
    stored: StoredBytes
    publisher: Publisher
    unread: UnreadAnswers
    deliverer: Deliverer
    dead_letters: DeadLetters
    nodes: Nodes
    working: ParallelSubscriptions

    def move(self, subscription: SubscriptionId) -> None:
        """Wake the pulls of a subscription whose cursor has moved."""
        self.deliverer.wake(subscription)
        self.working.opened.forget(subscription)

    def stop(self, subscription: SubscriptionId) -> None:
        """End the pulls of a deleted or detached subscription."""
        self.deliverer.wake(subscription)
        self.working.opened.leave(subscription)


@dataclass(frozen=True, slots=True)
class Service:
    """Engines and application, ready to be served."""

    settings: Settings
    folder: Folder
    log: Log
    embedded: EmbeddedLog | None  # the log, if it is in the data folder
    registry: Registry
    cursors: CursorStore
    deliverer: Deliverer
    working: ParallelSubscriptions
    nodes: Nodes
    workers: Pool
    cases: UseCases
    gate: RequestGate
    bodies: Bodies
    auditor: Auditor
    counting: Counting
    losses: LossTotal
    counts: Counts
    push: Push
    identity: Identity
    trail: Trail
    failed_logins: FailedLogins
    token_uses: TokenUses
    expiry: Expiry
    watched: ParallelMetrics
    stored: StoredBytes
    quota_use: QuotaUse
    slots: ProjectSlots
    api: App
    lane: Lane
    pubsub_calls: Counter[str] = field(default_factory=Counter)  # finished calls of Google's clients, by code

    @property
    def away(self) -> str | None:
        """Why clients should go elsewhere: a dependency does not answer."""
        return self.log.away or self.registry.away


def assemble(
    settings: Settings, engines: Engines, roles: RoleTable, reach: Reach | None, trusted: Trusted, to_nodes: HttpClient
) -> Service:
    """Build the service; `reach` is None while push is disabled."""
    registry, log, clock = engines.registry, engines.log, engines.clock
    trail = Trail(
        engines.folder.audit, registry.audit, clock, days=settings.audit_days, space=engines.space,
        retention_clock=engines.retention_clock,
    )  # fmt: skip
    proxies = networks(settings.trusted_proxies, "trusted_proxies")
    identity = identity_of(settings, trusted, engines, trail, proxies)
    token_uses = TokenUses(registry.named_tokens)
    admission = admission_of(settings, engines, roles, identity, token_uses)
    flow = message_flow(settings, engines, to_nodes)
    deliverer, working, nodes = flow.deliverer, flow.working, flow.nodes
    push = push_of(settings, engines, deliverer, working, flow.dead_letters, reach)
    expiry = expiry_of(engines, flow, push, trail)
    cases = use_cases(settings, engines, flow, push, expiry)
    losses = LossTotal(log, engines.cursors)
    slots = slots_of(settings, registry)
    quota_use = QuotaUse(registry, flow.stored, slots)
    rates = Rates(users=settings.user_requests_per_second, clock=clock, rules=registry.quotas.rules)
    gate = RequestGate(admission, settings.auth_option, rates, slots.connections)
    bodies = Bodies(settings.max_body_bytes, affordable_bytes(settings.max_buffered_bytes), settings.request_seconds)
    fast = FastRoutes(
        gate, bodies, flow.publisher, deliverer, working, registry.invalidations, slots.waiting_pulls,
        strict=settings.strict_data, workers=flow.workers, forwarder=nodes.forwarder,
    )  # fmt: skip
    table = routes(settings, engines, admission, gate, roles, flow, cases, losses, push, identity, expiry, quota_use)
    logins = FailedLogins(SERVICE, trail, LoginLimit(settings.failed_logins_per_minute, clock), clock)
    auditor = Auditor(trail, logins, gate, clock, proxies)
    logins_of_console = partial(identity.console_logins, settings.console_logins)
    pages = Console(logins_of_console).routes() if settings.console else []
    api = App(gate, bodies, flow.unread, fast, table, auditor, nodes.forwarder, pages)
    watched = ParallelMetrics(working, log, clock, by_name=settings.metrics_labels)
    lane = Lane(api, fast, flow.unread, is_traced=settings.log_level == "debug")
    return Service(
        settings, engines.folder, log, engines.embedded, registry, engines.cursors, deliverer, working, nodes,
        flow.workers, cases, gate, bodies, auditor, flow.counting, losses, flow.counts, push, identity, trail, logins,
        token_uses, expiry, watched, flow.stored, quota_use, slots, api, lane,
    )  # fmt: skip


def admission_of(
    settings: Settings, engines: Engines, roles: RoleTable, identity: Identity, token_uses: TokenUses
) -> Admission:
    """Return the admission of requests: authentication and permissions."""
    return Admission(
        engines.registry,
        service_token=settings.service_token,
        per_resource_auth=settings.per_resource_auth,
        permissions=roles.permissions,
        logins=identity.logins,
        note_use=token_uses.note,
        show_tokens=settings.show_tokens,
        clock=engines.clock,
    )


def message_flow(settings: Settings, engines: Engines, to_nodes: HttpClient) -> MessageFlow:
    """Return the parts that store, deliver and count messages."""
    registry, log, cursors, clock = engines.registry, engines.log, engines.cursors, engines.clock
    counts = Counts(clock)
    counting = Counting(registry, log, counts, by_topic=settings.metrics_labels)
    workers = Pool()
    validators = Validators(registry, LongChecks(workers))
    stored = StoredBytes(registry, log, clock, engines.embedded)
    if engines.embedded:
        engines.embedded.keep_needed(partial(needed_offsets, registry, cursors), stored.owners_near_limit)
    publisher = Publisher(registry, log, settings.max_message_bytes, validators, counts, stored)
    unread = UnreadAnswers(affordable_bytes(settings.max_unread_bytes))
    deliverer = Deliverer(
        registry, log, cursors, settings.max_pull_messages, settings.max_pull_bytes, settings.pull_wait,
        push_enabled=settings.push_enabled, counts=counts, unread=unread,
    )  # fmt: skip
    dead_letters = DeadLetters(registry, log, cursors, counts, stored)
    nodes = nodes_of(settings, engines, to_nodes, unread)
    working = ParallelSubscriptions(deliverer, cursors, dead_letters, clock, nodes.ownership, engines.retention_clock)
    return MessageFlow(
        counts, counting, workers, validators, stored, publisher, unread, deliverer, dead_letters, nodes, working
    )


def expiry_of(engines: Engines, flow: MessageFlow, push: Push, trail: Trail) -> Expiry:
    """Return the expiry of unused subscriptions."""
    registry, clock = engines.registry, engines.clock
    unused = Subscriptions(registry, engines.log, engines.cursors, push.pushing, stopped=flow.stop)
    return Expiry(registry, flow.counts, unused, trail, clock, engines.retention_clock)


def use_cases(settings: Settings, engines: Engines, flow: MessageFlow, push: Push, expiry: Expiry) -> UseCases:
    """Return the use cases shared by several surfaces."""
    registry, log, cursors, clock = engines.registry, engines.log, engines.cursors, engines.clock
    working, retention_clock, settle = flow.working, engines.retention_clock, push.pushing.settle
    retention = Retention(registry, log)
    reader = RangeReader(registry, log, settings.max_read_messages)
    watcher = PushWatcher(registry, log, cursors, push.pushing, push.assignment, working)
    duty = None if settings.registry == "sqlite" else Duty(registry)
    return UseCases(
        Topics(registry, log, flow.counting, retention, changed=settle if push.reach and push.reach.driven else None),
        flow.publisher,
        retention,
        Subscriptions(
            registry, log, cursors, push.pushing, stopped=flow.stop, used=expiry.note, cover=working.storer.cover
        ),
        Snapshots(registry, log, cursors, clock, retention_clock),
        Seeker(registry, log, cursors, flow.move, working.opened.own, working, retention_clock, expiry.note),
        Schemas(registry, log, flow.validators),
        Projects(registry, log, cursors, changed=settle),
        reader,
        watcher,
        Live(registry, log, cursors, clock, reader, watcher, working),
        MetricsHistory(registry, log, cursors, clock, retention_clock, engines.history, duty),
    )


def slots_of(settings: Settings, registry: Registry) -> ProjectSlots:
    """Return the concurrency quotas of projects."""
    rules, most = registry.quotas.rules, settings.max_connections
    return ProjectSlots(
        ConnectionSlots(rules, most), QuotaSlots(rules, WAITING_PULLS, most), QuotaSlots(rules, STREAMS, most)
    )


def routes(
    settings: Settings, engines: Engines, admission: Admission, gate: RequestGate, roles: RoleTable, flow: MessageFlow,
    cases: UseCases, losses: LossTotal, push: Push, identity: Identity, expiry: Expiry, quota_use: QuotaUse,
) -> dict[str, Handler]:  # fmt: skip
    """Return the handlers of all actions except the hot ones."""
    registry, log, cursors, clock = engines.registry, engines.log, engines.cursors, engines.clock
    pushing, counting, deliverer, working, nodes = push.pushing, flow.counting, flow.deliverer, flow.working, flow.nodes
    default_retention = Milliseconds(round(settings.retention * 1000))
    service_doctor = ServiceDoctor(
        registry,
        log,
        cursors,
        losses,
        _remedies(settings, engines),
        {"registry": lambda: registry.away},
        issuers=identity.issuers,
        copied_for=engines.embedded.kept_for if engines.embedded else lambda: None,
        leap=lambda: engines.retention_clock.leap,
        not_base64=lambda: counting.not_base64,
        nodes=LeaseTable(registry, PARALLEL).holders if nodes.name else None,
    )
    leases = LeaseRequests(deliverer, working.settler)
    metrics = Metrics(registry, counting, Losses(registry, log, cursors), clock, working)
    doctor = Doctor(
        registry, log, cursors, counting, default_retention, clock, engines.retention_clock, cases.push_watcher,
        working, expiry.note,
    )  # fmt: skip
    push_server = "internal"  # the name in `/status` (contract 14.5)
    if settings.push_server_host:
        push_server = f"{settings.push_server_host}:{settings.push_server_port}"
    about = ServiceInfo(admission, registry, settings.proxy_hostname, pushing, push_server)
    return bind_handlers(
        ServiceRoutes(about, metrics, Usage(registry, counting, admission, clock)),
        UserRoutes(Users(registry, roles.roles), admission),
        TokenRoutes(Tokens(registry, clock)),
        BindingRoutes(IdentityBindings(registry)),
        IssuerRoutes(identity.issuers),
        RegistrationRoutes(Registrations(registry)),
        MemberRoutes(Members(registry)),
        OffsetRoutes(cases.seeker),
        DoctorRoutes(doctor, service_doctor, nodes.name),
        PushRoutes(pushing, PushSecrets(registry, pushing.settle), cases.push_watcher),
        PushIdentityRoutes(push.identity),
        DeliveryRoutes(push.assignment, pushing, deliverer, working.puller, flow.dead_letters, leases),
        SubscriptionRoutes(cases.subscriptions, pushing, leases),
        SnapshotRoutes(cases.snapshots),
        ReadingRoutes(cases.reader, flow.workers),
        WatchRoutes(cases.live, cases.history, gate),
        RetentionRoutes(cases.retention),
        SchemaRoutes(cases.schemas),
        TopicRoutes(cases.topics),
        ProjectRoutes(cases.projects, quota_use),
        AuditRoutes(registry.audit),
    )


def client_of(settings: Settings) -> HttpClient:
    """Return the HTTP client for other nodes. Raises `BadSettings`."""
    tls = trust(settings.node_ca_file, "node_ca_file") if settings.node_ca_file else None
    content = settings.max_pull_bytes + settings.largest_stored_message
    return HttpClient(
        Guard(ALL_NETWORKS),
        tls,
        seconds=settings.pull_wait + ANSWER_SECONDS,
        connect_seconds=CONNECT_SECONDS,
        most_bytes=content + settings.max_pull_messages * MESSAGE_BYTES,
        at_once=settings.max_connections,
    )


def nodes_of(settings: Settings, engines: Engines, client: HttpClient, unread: UnreadAnswers) -> Nodes:
    """Return this node's links to others. A node with its own log or registry has none."""
    if engines.embedded or settings.registry == "sqlite":
        return Nodes(Ownership(), None)
    node = Holder(new_uuid(), settings.node_url, _pubsub_of(settings))
    ownership = SharedOwnership(LeaseTable(engines.registry, PARALLEL), node)
    return Nodes(ownership, Forwarder(client, node.name, ownership.doubt, unread), node.name)


def _pubsub_of(settings: Settings) -> str:
    """Return HOST:PORT of this node's Google Pub/Sub, on the host of `node_url`; empty if unknown."""
    host = urlsplit(settings.node_url).netloc.rpartition("@")[2]
    if not host or not settings.pubsub_port:
        return ""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return f"{name}:{settings.pubsub_port}"


def _remedies(settings: Settings, engines: Engines) -> Remedies:
    if engines.embedded:
        return SINGLE_PROCESS_REMEDIES
    guarded = " --command-config FILE" if settings.kafka_tls or settings.kafka_user else ""
    tool = f"kafka-topics.sh --bootstrap-server {settings.kafka_servers}{guarded}"
    return cluster_remedies(lambda log: f"{tool} --delete --topic {log}")
