"""The command line of the parts: `python -m local_cluster` with `kafka`, `spark` or `up`."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from local_cluster.caretaker import Caretaker
from local_cluster.jars import CannotFetch
from local_cluster.kafka import Brokers
from local_cluster.local import Cluster, table
from local_cluster.processes import DidNotStart, treat_as_ctrl_c
from local_cluster.spark import SparkCluster

OK, FAILED = 0, 1


def main() -> int:
    """Run a command. Returns 0 when it was stopped, 1 when it could not start."""
    parser = argparse.ArgumentParser(prog="python -m local_cluster", description="Real parts of the cluster shape.")
    parser.add_argument("what", choices=sorted(COMMANDS))
    parser.add_argument("--secure", action="store_true", help="with up: TLS and passwords between all parts")
    options = parser.parse_args()
    treat_as_ctrl_c()
    try:
        with tempfile.TemporaryDirectory(prefix="ams-cluster-") as folder:
            COMMANDS[options.what](Path(folder), options.secure)
    except (CannotFetch, DidNotStart) as refusal:
        print(refusal, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("\nStopped; all data and logs of it are gone.")
    return OK


def kafka(folder: Path, _secure: bool) -> None:
    """Run one broker until Ctrl-C."""
    with Brokers(folder) as brokers:
        print(f"Kafka is ready at {brokers.servers}, its log in {brokers.process(1).log}.")
        print(f"Try: ams serve --log kafka --kafka-servers {brokers.servers} --kafka-replication 1 --kafka-min-isr 1")
        print("Ctrl-C stops it; what was written goes with it.", flush=True)
        signal.pause()


def up(folder: Path, secure: bool) -> None:
    """Run a whole cluster until Ctrl-C, and restart killed parts."""
    print("Starting three brokers, three PostgreSQL servers, three nodes and haproxy.", flush=True)
    with Cluster(folder, secure=secure) as cluster, Caretaker(cluster, _say):
        print(f"\n{table(cluster.parts())}\n")
        print(f"The service is ready at {cluster.haproxy.url}. For ams and curl:\n")
        print(f"  export AMS_ENDPOINT={cluster.haproxy.url} AMS_CA={cluster.ca} AMS_TOKEN_FILE={cluster.token_file}")
        print(f'  curl --cacert $AMS_CA -H "x-api-key: $(cat $AMS_TOKEN_FILE)" {cluster.haproxy.url}/v1/projects\n')
        print(f"For Google's clients, by TLS and with the same token: {cluster.haproxy.pubsub}\n")
        print("Kill what you like by its pid (kill -9 PID): it is brought back. Ctrl-C stops everything.", flush=True)
        signal.pause()


def spark(folder: Path, _secure: bool) -> None:
    """Run a master and three workers until Ctrl-C, and restart killed ones."""
    print("Starting a master of Spark and three workers, each with an environment of its own.", flush=True)
    with SparkCluster(folder) as cluster, Caretaker(cluster, _say):
        print(f"\n{table(cluster.parts())}\n")
        print(f"Its page is {cluster.page}. For jobs, where a service is known to ams:\n")
        print(f"  .venv/bin/ams pipeline run archive -p PROJECT --master {cluster.url}\n")
        print("Ctrl-C stops it; what runs on it ends with it.")
        print(f"ready {cluster.url}", flush=True)
        signal.pause()


COMMANDS = {"kafka": kafka, "spark": spark, "up": up}


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
