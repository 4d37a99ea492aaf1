"""Options of the log's engines, made of the settings."""

from typing import TYPE_CHECKING

from ams.core.clock import Milliseconds
from ams.core.settings import Seconds, Settings
from ams.storage.log.embedded import LogOptions

if TYPE_CHECKING:
    from ams.storage.log.kafka.options import KafkaOptions


def log_options(settings: Settings, folder: str) -> LogOptions:
    """Return the options of the embedded log; `folder` is the data folder, whose disk it watches."""
    return LogOptions(
        retention=_milliseconds(settings.retention),
        idempotency_window=_milliseconds(settings.idempotency_window) or None,
        max_bytes=settings.max_data_bytes or None,
        data_folder=folder,
        min_free_bytes=settings.min_free_bytes,
        reserve_bytes=settings.reserve_bytes,
        segment_bytes=settings.segment_bytes,
        sync="interval" if settings.sync == "interval" else "always",
        sync_interval_ms=_milliseconds(settings.sync_interval),
    )


def kafka_options(settings: Settings) -> "KafkaOptions":
    """Return the options of the log on Kafka."""
    from ams.storage.log.kafka.options import KafkaOptions

    return KafkaOptions(
        servers=settings.kafka_servers,
        prefix=settings.kafka_prefix,
        replication=settings.kafka_replication,
        min_isr=settings.kafka_min_isr,
        tls=settings.kafka_tls,
        ca_file=settings.kafka_ca_file,
        sasl=settings.kafka_sasl,
        user=settings.kafka_user,
        password=settings.kafka_password,
        retention=_milliseconds(settings.retention),
        idempotency_window=_milliseconds(settings.idempotency_window) or None,
    )


def _milliseconds(seconds: Seconds) -> Milliseconds:
    return Milliseconds(round(seconds * 1000))
