"""What the engine is told, and what it says of what it cannot use."""

import pytest

from ams.core.errors import BadSettings
from ams.storage.log.kafka.options import KafkaOptions, access, addresses
from ams.storage.log.kafka.standards import new_configs


def test_brokers_to_begin_with_are_hosts_and_ports():
    found = addresses(KafkaOptions(servers="one.example:9093, two.example,[::1]:9094"))
    assert sorted(found) == [("::1", 9094), ("one.example", 9093), ("two.example", 9092)]


def test_what_is_no_address_is_named_with_its_setting():
    with pytest.raises(BadSettings, match="kafka_servers is host:port, or several with commas, not one.example:port"):
        addresses(KafkaOptions(servers="one.example:port"))


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_without_certificates_is_named_with_its_setting(tmp_path, content):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BadSettings, match=f"kafka_ca_file {file} cannot be used: .+"):
        access(KafkaOptions(servers="one.example:9092", tls=True, ca_file=str(file)))


def test_the_way_in_is_what_was_asked_for():
    open_way = access(KafkaOptions(servers="one.example:9092"))
    assert open_way == {"security_protocol": "PLAINTEXT"}
    closed = access(KafkaOptions(servers="one.example:9092", tls=True, user="ams", password="secret"))
    assert (closed["security_protocol"], closed["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert "secret" not in repr(KafkaOptions(servers="one.example:9092", password="secret"))


def test_the_age_of_segments_follows_that_of_messages():
    options = KafkaOptions(servers="one.example:9092")
    assert new_configs(options, None)["segment.ms"] == str(options.retention // 8)
    assert new_configs(options, 1)["segment.ms"] == "600000"
