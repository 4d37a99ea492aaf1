"""A server that speaks MongoDB's wire protocol: `mongo-java-server` of Maven Central, driven through py4j."""

from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from local_cluster.jars import Jars, there
from local_cluster.ports import LOOPBACK
from local_cluster.processes import Startable

JARS = Jars("mongo-java-server-1.47.0", Path(__file__).with_name("mongodb.pom.xml"))
WIRE = 17
"""Wire version that it reports, of MongoDB 6.0: drivers of Go and newer ones of Python refuse its default of 8."""


class MongoDB(Startable):
    """One server, all in memory; it ends with this process."""

    def __init__(self, *, heap_mb: int = 128) -> None:
        self._heap_mb = heap_mb
        self.uri = ""
        """Its URL, once it is started."""

    def start(self) -> None:
        """Start it, and return when it serves; raises `CannotFetch`."""
        [bridge] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
        port = launch_gateway(
            jarpath=str(bridge), classpath=f"{there(JARS)}/*", javaopts=[f"-Xmx{self._heap_mb}m"], die_on_exit=True
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        java = self._gateway.jvm
        mongo = java.de.bwaldvogel.mongo
        version = mongo.ServerVersion.MONGO_5_0
        kept = version.getClass().getDeclaredField("wireVersion")
        kept.setAccessible(True)
        kept.setInt(version, WIRE)
        backend = mongo.backend.memory.MemoryBackend()
        backend.version(version)
        self._server = mongo.MongoServer(backend)
        self.uri = f"mongodb://{LOOPBACK}:{self._server.bind().getPort()}"

    def stop(self) -> None:
        """End it."""
        self._server.shutdownNow()
        self._gateway.shutdown()
