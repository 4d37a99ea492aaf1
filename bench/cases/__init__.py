"""The cases, by the name they are chosen with."""

from collections.abc import Callable, Iterator

from bench.cases.authn import authn_bindings, authn_login
from bench.cases.backlog import backlog
from bench.cases.backup import backup
from bench.cases.cluster import cluster_ack, cluster_publish, cluster_pull
from bench.cases.cluster_topics import cluster_topics
from bench.cases.console import console
from bench.cases.console_watch import console_watch
from bench.cases.identity import identity_users, oidc_publish
from bench.cases.lists import lists
from bench.cases.metrics import metrics
from bench.cases.migrate_copy import migrate_copy
from bench.cases.open_loop import open_loop
from bench.cases.parallel import parallel
from bench.cases.publish import publish
from bench.cases.publish_with import counting, idempotent, schemas
from bench.cases.pubsub import pubsub
from bench.cases.pull import acknowledge, pull, read
from bench.cases.push_hanging import push_hanging
from bench.cases.push_idle import cluster_push_idle, push_idle
from bench.cases.push_latency import push_latency
from bench.cases.push_one import push_batch, push_one
from bench.cases.spark_archive import spark_archive
from bench.cases.spark_cluster import spark_cluster
from bench.cases.spark_jobs import spark_jobs
from bench.cases.spark_publish import spark_publish
from bench.cases.spark_read import spark_read
from bench.cases.start import start
from bench.cases.tenants import tenants
from bench.cases.tls import tls
from bench.cases.topics import topics
from bench.cases.wake import cluster_wake, wake
from bench.cases.where import where
from bench.report import Result
from bench.run import Bench

CASES: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "publish": publish,
    "schemas": schemas,
    "idempotent": idempotent,
    "counting": counting,
    "pull": pull,
    "read": read,
    "ack": acknowledge,
    "parallel": parallel,
    "pubsub": pubsub,
    "wake": wake,
    "tls": tls,
    "authn-login": authn_login,
    "authn-bindings": authn_bindings,
    "oidc-publish": oidc_publish,
    "identity-users": identity_users,
    "start": start,
    "topics": topics,
    "lists": lists,
    "backup": backup,
    "metrics": metrics,
    "backlog": backlog,
    "tenants": tenants,
    "console": console,
    "console-watch": console_watch,
    "push-latency": push_latency,
    "push-one": push_one,
    "push-batch": push_batch,
    "push-idle": push_idle,
    "push-hanging": push_hanging,
    "open": open_loop,
    "where": where,
    "migrate-copy": migrate_copy,
    "spark-read": spark_read,
    "spark-archive": spark_archive,
    "spark-cluster": spark_cluster,
    "spark-jobs": spark_jobs,
    "cluster-publish": cluster_publish,
    "cluster-pull": cluster_pull,
    "cluster-ack": cluster_ack,
    "cluster-wake": cluster_wake,
    "cluster-topics": cluster_topics,
    "cluster-push-idle": cluster_push_idle,
    "spark-publish": spark_publish,
}
