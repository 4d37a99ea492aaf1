"""Assembly: use cases on the engines, the application on the use cases, and links to other nodes."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import urlsplit

from ams.access.admission import Admission
from ams.access.permissions import roles_in
from ams.access.rates import ProjectSlots, QuotaSlots, Rates
from ams.app.wiring.engines import Engines
from ams.app.wiring.identity import Identity, Trusted
from ams.app.wiring.push import Push, Reach
from ams.cluster.lease_table import PARALLEL, Duty, Holder, LeaseTable
from ams.cluster.ownership import Ownership, SharedOwnership
from ams.core.clock import Milliseconds
from ams.core.names import SubscriptionId, new_uuid
from ams.core.quotas import CONNECTIONS, STREAMS, WAITING_PULLS
from ams.core.rate import LoginLimit
from ams.core.settings import Settings
from ams.http.app import App
from ams.http.audit import SERVICE, Auditor
from ams.http.console import Console
from ams.http.fast_lane import Lane
from ams.http.forwarding import Forwarder
from ams.http.hot_routes import FastRoutes, RequestGate
from ams.http.limits import Bodies, affordable_bytes
from ams.http.routes import projects, push, reading, schemas, service, subscriptions, users
from ams.http.routing import Handler, bind_handlers
from ams.outgoing.address_guard import ALL_NETWORKS, Guard, networks, trust
from ams.outgoing.client import HttpClient
from ams.service.dead_letters import DeadLetters
from ams.service.delivery import Deliverer, UnreadAnswers
from ams.service.doctor import Doctor
from ams.service.history import MetricsHistory
from ams.service.issuers import IdentityBindings
from ams.service.live_views import Live
from ams.service.metrics import Metrics
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.parallel.metrics import ParallelMetrics
from ams.service.projects import Members, Projects, QuotaUse
from ams.service.publishing import Publisher
from ams.service.push.configurations import PushWatcher
from ams.service.ranges import RangeReader
from ams.service.retention import Losses, LossTotal, Retention
from ams.service.schemas import Schemas
from ams.service.service_doctor import ServiceDoctor, ServiceInfo
from ams.service.stored_bytes import StoredBytes, needed_offsets
from ams.service.subscription_offsets import Seeker, Snapshots
from ams.service.subscriptions import Expiry, Subscriptions
from ams.service.tallies import Counting, Counts
from ams.service.topics import Topics
from ams.service.users import Registrations, Tokens, TokenUses, Users
from ams.service.validators import Validators
from ams.storage.audit.trail import FailedLogins, Trail
from ams.validation.long_checks import LongChecks
from ams.workers.pool import Pool

CONNECT_SECONDS = 1.0  # to another node; slower ones count as down
ANSWER_SECONDS = 6.0  # for another node's answer, in addition to a pull's wait: clients give up at ten
MESSAGE_BYTES = 2048  # of a message in an answer, in addition to its content: id, time, ack id


class Service:
    """Engines and application, ready to be served. Each part is made once, on those before it."""

    def __init__(
        self, settings: Settings, engines: Engines, permissions: Mapping[str, frozenset[str]], reach: Reach | None,
        trusted: Trusted, to_nodes: HttpClient,
    ) -> None:  # fmt: skip
        """`reach` is None while push is disabled; `to_nodes` is the client of other nodes."""
        registry, log, clock = engines.registry, engines.log, engines.clock
        self.settings, self._engines, self._to_nodes = settings, engines, to_nodes
        self.folder, self.log, self.embedded = engines.folder, log, engines.embedded
        self.registry, self.cursors = registry, engines.cursors
        self.trail = Trail(
            engines.folder.audit, registry.audit, clock, days=settings.audit_days, space=engines.space,
            retention_clock=engines.retention_clock,
        )  # fmt: skip
        proxies = networks(settings.trusted_proxies, "trusted_proxies")
        self.identity = Identity(settings, trusted, engines, self.trail, proxies)
        self.token_uses = TokenUses(registry.named_tokens)
        self._admission = Admission(
            registry, service_token=settings.service_token, per_resource_auth=settings.per_resource_auth,
            permissions=permissions, logins=self.identity.logins, note_use=self.token_uses.note,
            show_tokens=settings.show_tokens, clock=clock,
        )  # fmt: skip
        self._make_message_flow()
        self.push = Push(settings, engines, self.deliverer, self.working, self._dead_letters, reach)
        unused = Subscriptions(registry, log, engines.cursors, self.push.pushing, stopped=self._stop_pulls)
        self.expiry = Expiry(registry, self.counts, unused, self.trail, clock, engines.retention_clock)
        self._make_use_cases()
        self.losses = LossTotal(log, engines.cursors)
        rules, most = registry.quotas.rules, settings.max_connections
        self.slots = ProjectSlots(*(QuotaSlots(rules, name, most) for name in (CONNECTIONS, WAITING_PULLS, STREAMS)))
        self.quota_use = QuotaUse(registry, self.stored, self.slots)
        rates = Rates(users=settings.user_requests_per_second, clock=clock, rules=rules)
        self.gate = RequestGate(self._admission, settings.auth_option, rates, self.slots.connections)
        buffered = affordable_bytes(settings.max_buffered_bytes)
        self.bodies = Bodies(settings.max_body_bytes, buffered, settings.request_seconds)
        fast = FastRoutes(
            self.gate, self.bodies, self.publisher, self.deliverer, self.working, registry.invalidations,
            self.slots.waiting_pulls, strict=settings.strict_data, workers=self.workers,
            forwarder=self.forwarder,
        )  # fmt: skip
        attempts = LoginLimit(settings.failed_logins_per_minute, clock)
        self.failed_logins = FailedLogins(SERVICE, self.trail, attempts, clock)
        self.auditor = Auditor(self.trail, self.failed_logins, self.gate, clock, proxies)
        logins_of_console = partial(self.identity.console_logins, settings.console_logins)
        pages = Console(logins_of_console).routes() if settings.console else []
        unread, routes = self.deliverer.unread, self._make_routes(roles_in(permissions))
        self.api = App(self.gate, self.bodies, unread, fast, routes, self.auditor, self.forwarder, pages)
        self.watched = ParallelMetrics(self.working, log, clock, by_name=settings.metrics_labels)
        self.lane = Lane(self.api, fast, unread, is_traced=settings.log_level == "debug")
        self.pubsub_calls: Counter[str] = Counter()  # finished calls of Google's clients, by code

    @property
    def away(self) -> str | None:
        """Why clients should go elsewhere: a dependency does not answer."""
        return self.log.away or self.registry.away

    def _make_message_flow(self) -> None:
        settings, engines = self.settings, self._engines
        registry, log, cursors, clock = engines.registry, engines.log, engines.cursors, engines.clock
        self.counts = Counts(clock)
        self.counting = Counting(registry, log, self.counts, by_topic=settings.metrics_labels)
        self.workers = Pool()
        upkeep = engines.embedded.upkeep if engines.embedded else None
        self.stored = StoredBytes(registry, log, clock, upkeep.capacity if upkeep else None)
        if upkeep:
            upkeep.keep_needed(partial(needed_offsets, registry, cursors), self.stored.owners_near_limit)
        unread = UnreadAnswers(affordable_bytes(settings.max_unread_bytes))
        self.deliverer = Deliverer(
            registry, log, cursors, settings.max_pull_messages, settings.max_pull_bytes, settings.pull_wait,
            push_enabled=settings.push_enabled, counts=self.counts, unread=unread,
        )  # fmt: skip
        self._dead_letters = DeadLetters(registry, log, cursors, self.counts, self.stored)
        self.node = ""  # name of this node, with other nodes; one with its own log or registry has none
        self.ownership = Ownership()
        self.forwarder: Forwarder | None = None
        if not (engines.embedded or settings.registry == "sqlite"):
            node = Holder(new_uuid(), settings.node_url, _pubsub_of(settings))
            self.node, self.ownership = node.name, SharedOwnership(LeaseTable(registry, PARALLEL), node)
            self.forwarder = Forwarder(self._to_nodes, node.name, self.ownership.doubt, unread)
        self.working = ParallelSubscriptions(
            self.deliverer, self._dead_letters, clock, self.ownership, engines.retention_clock
        )

    def _wake_pulls(self, subscription: SubscriptionId) -> None:
        self.deliverer.wake(subscription)
        self.working.opened.forget(subscription)

    def _stop_pulls(self, subscription: SubscriptionId) -> None:
        self.deliverer.wake(subscription)
        self.working.opened.leave(subscription)

    def _make_use_cases(self) -> None:
        settings, engines, working, pushing = self.settings, self._engines, self.working, self.push.pushing
        registry, log, cursors, clock = engines.registry, engines.log, engines.cursors, engines.clock
        self.retention, validators = Retention(registry, log), Validators(registry, LongChecks(self.workers))
        changed = pushing.server.settle if self.push.reach and self.push.reach.driven else None
        self.topics = Topics(registry, log, self.counting, self.retention, changed=changed)
        self.publisher = Publisher(registry, log, settings.max_message_bytes, validators, self.counts, self.stored)
        self.subscriptions = Subscriptions(
            registry, log, cursors, pushing, stopped=self._stop_pulls, used=self.expiry.note, cover=working.storer.cover
        )
        self.snapshots = Snapshots(registry, log, cursors, clock, engines.retention_clock)
        self.seeker = Seeker(
            registry, log, cursors, self._wake_pulls, working, engines.retention_clock, self.expiry.note
        )
        self.schemas = Schemas(registry, log, validators)
        self.projects = Projects(registry, log, cursors, changed=pushing.server.settle)
        self.reader = RangeReader(registry, log, settings.max_read_messages)
        self.watcher = PushWatcher(registry, log, cursors, pushing, self.push.assignment, working)
        self.live = Live(registry, log, cursors, clock, self.reader, self.watcher, working)
        duty = None if settings.registry == "sqlite" else Duty(registry)
        self.history = MetricsHistory(registry, log, cursors, clock, engines.retention_clock, engines.history, duty)

    def _make_routes(self, roles: frozenset[str]) -> dict[str, Handler]:
        """Return the handlers of all actions except the hot ones."""
        settings, engines, admission = self.settings, self._engines, self._admission
        registry, log, cursors, clock = engines.registry, engines.log, engines.cursors, engines.clock
        pushing, assignment, counting = self.push.pushing, self.push.assignment, self.counting
        deliverer, working, node = self.deliverer, self.working, self.node
        service_doctor = ServiceDoctor(
            registry, log, cursors, self.losses, _removal_of_logs(settings, engines), issuers=self.identity.issuers,
            copied_for=engines.embedded.upkeep.kept_for if engines.embedded else lambda: None,
            leap=lambda: engines.retention_clock.leap, not_base64=lambda: counting.counts.not_base64_of,
            nodes=LeaseTable(registry, PARALLEL).holders if node else None,
        )  # fmt: skip
        metrics = Metrics(registry, counting, Losses(registry, log, cursors), clock, admission, working)
        doctor = Doctor(
            registry, log, cursors, counting, Milliseconds(round(settings.retention * 1000)), clock,
            engines.retention_clock, self.watcher, working, self.expiry.note,
        )  # fmt: skip
        push_server = "internal"  # the name in `/status` (contract 14.5)
        if settings.push_server_host:
            push_server = f"{settings.push_server_host}:{settings.push_server_port}"
        about = ServiceInfo(admission, registry, settings.proxy_hostname, pushing, push_server)
        return bind_handlers(
            service.ServiceRoutes(about, metrics, registry.audit, doctor, service_doctor, node),
            users.UserRoutes(
                Users(registry, roles), admission, Tokens(registry, clock), Registrations(registry),
                self.identity.issuers, IdentityBindings(registry),
            ),
            projects.ProjectRoutes(self.projects, Members(registry), self.quota_use, self.topics, self.retention),
            schemas.SchemaRoutes(self.schemas),
            subscriptions.SubscriptionRoutes(
                self.subscriptions, pushing, working.settler, self.seeker, self.snapshots
            ),
            push.PushRoutes(
                pushing, self.watcher, self.push.identity, assignment, deliverer, working.puller, self._dead_letters,
                working.settler,
            ),
            reading.ReadingRoutes(self.reader, self.live, self.history, self.gate, self.workers),
        )  # fmt: skip


def client_of(settings: Settings) -> HttpClient:
    """Return the HTTP client for other nodes. Raises `BadSettings`."""
    tls = trust(settings.node_ca_file, "node_ca_file") if settings.node_ca_file else None
    content = settings.max_pull_bytes + settings.largest_stored_message
    return HttpClient(
        Guard(ALL_NETWORKS), tls, seconds=settings.pull_wait + ANSWER_SECONDS, connect_seconds=CONNECT_SECONDS,
        most_bytes=content + settings.max_pull_messages * MESSAGE_BYTES, at_once=settings.max_connections,
    )  # fmt: skip


def _pubsub_of(settings: Settings) -> str:
    """Return HOST:PORT of this node's Google Pub/Sub, on the host of `node_url`; empty if unknown."""
    host = urlsplit(settings.node_url).netloc.rpartition("@")[2]
    if not host or not settings.pubsub_port:
        return ""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return f"{name}:{settings.pubsub_port}"


def _removal_of_logs(settings: Settings, engines: Engines) -> Callable[[str], str] | None:
    if engines.embedded:
        return None
    guarded = " --command-config FILE" if settings.kafka_tls or settings.kafka_user else ""
    tool = f"kafka-topics.sh --bootstrap-server {settings.kafka_servers}{guarded}"
    return lambda log: f"{tool} --delete --topic {log}"
