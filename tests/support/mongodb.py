"""A server that speaks MongoDB's wire protocol: `mongo-java-server` of Maven Central, driven through py4j."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from cluster.jars import Jars, there
from tests.support import marks

JARS = Jars("mongo-java-server-1.47.0", Path(__file__).with_name("mongodb.pom.xml"))


@contextlib.contextmanager
def mongodb() -> Iterator[str]:
    """Run a server until the block ends; gives its URI."""
    marks.require("kafka")  # Java and Maven, which tests of this mark have
    [bridge] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port = launch_gateway(jarpath=str(bridge), classpath=f"{there(JARS)}/*", javaopts=["-Xmx128m"], die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        mongo = gateway.jvm.de.bwaldvogel.mongo
        server = mongo.MongoServer(mongo.backend.memory.MemoryBackend())
        yield f"mongodb://127.0.0.1:{server.bind().getPort()}"
        server.shutdownNow()
    finally:
        gateway.shutdown()
