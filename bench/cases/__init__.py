"""The cases, by the name they are chosen with. Each guards a promise; `docs/how-to/bench.md` lists them."""

from collections.abc import Callable, Iterator

from bench.cases.cluster import cluster
from bench.cases.parallel import parallel
from bench.cases.publish import publish
from bench.cases.pubsub import pubsub
from bench.cases.pull import pull
from bench.cases.push import push
from bench.cases.spark import spark
from bench.cases.start import start
from bench.cases.tenants import tenants
from bench.cases.tls import tls
from bench.report import Result
from bench.run import Bench

CASES: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "publish": publish,
    "pull": pull,
    "push": push,
    "parallel": parallel,
    "pubsub": pubsub,
    "tls": tls,
    "start": start,
    "tenants": tenants,
    "cluster": cluster,
    "spark": spark,
}
