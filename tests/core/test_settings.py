"""Settings, the YAML of definitions, and the configuration of the reference (contract 16)."""

import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import BadDocument, Unusable
from ams.core.settings import MAX_RETENTION_SECONDS, Bytes, Settings, toml_text
from ams.core.settings_import import import_configuration
from ams.core.yaml_tree import MAX_BYTES, MAX_DEPTH, Value, read_tree
from ams.storage.log.embedded.segment import CLASSES


def load_settings(
    flags: dict[str, object] | None = None, environment: dict[str, str] | None = None, config: str | None = None
) -> Settings:
    return Settings.load(flags or {}, environment or {}, config)


def config_in(folder: Path, text: str) -> str:
    file = folder / "ams.toml"
    file.write_text(text)
    return str(file)


def test_flags_win_over_the_environment_which_wins_over_the_file_which_wins_over_defaults(tmp_path: Path) -> None:
    config = config_in(tmp_path, 'host = "file"\nport = 1\nops_port = 1\n')
    settings = load_settings({"port": "3"}, {"AMS_PORT": "2", "AMS_OPS_PORT": "2"}, config)
    assert (settings.host, settings.port, settings.ops_port) == ("file", 3, 2)
    assert settings.retention == 7 * 86400


@pytest.mark.parametrize(("name", "text", "value"), [
    ("min_free_bytes", "16MiB", 16 * 2**20), ("min_free_bytes", "500kB", 500_000), ("min_free_bytes", "7", 7),
    ("min_free_bytes", "1.5 GiB", 3 * 2**29), ("min_free_bytes", "0", 0),
    ("retention", "7d", 604800), ("retention", "90s", 90), ("retention", "250ms", 0.25), ("retention", "12h", 43200),
    ("retention", "5", 5),
])  # fmt: skip
def test_sizes_and_durations_are_written_with_units(name: str, text: str, value: float) -> None:
    assert getattr(load_settings({name: text}), name) == value


KAFKA = {"log": "kafka", "kafka_servers": "kafka1.example:9092"}


@pytest.mark.parametrize("flags", [
    *({"port": each} for each in ("eighty", "70000", "-1")),
    *({"retention": each} for each in ("0", "800d", "365.1d")),
    *({"segment_bytes": each} for each in ("8GiB", "1kB")),
    *({"pull_wait": each} for each in ("soon", "60s")),
    {"min_free_bytes": "7 elephants"}, {"max_buffered_bytes": "1MB"}, {"max_data_bytes": "50MB"},
    {"token_key": "short"}, {"log_facilities": "kafka"},
    {"drain_seconds": "2m"}, {"cert": "only.pem"}, {"cert": "a", "key": "b", "tls_self_signed": True},
    {"push_server_host": "push.example"}, {"push_server_port": "5555"},
    {"push_server_host": "push.example", "push_server_port": "70000"},
    {"push_worker_token": "ü"}, {"push_worker_token": "same", "service_token": "same"},
    {"log": "kafka"}, {"kafka_servers": "kafka1.example:9092"}, {"kafka_prefix": "a.b"},
    *({**KAFKA, "kafka_servers": each} for each in (
        "kafka1.example:ninety", "kafka1.example", "https://kafka1.example:9092", "kafka1.example:9092,")),
    {**KAFKA, "kafka_ca_file": "ca.pem"}, {**KAFKA, "kafka_min_isr": "4"},
    {"registry": "mysql://ams@db.example/ams"},
    *({"node_url": each} for each in (
        "node1.example:8080", "https://user:secret@node1.example", "https://node1.example/path")),
], ids=str)  # fmt: skip
def test_a_bad_value_stops_the_start_with_one_line(flags: dict[str, object]) -> None:
    with pytest.raises(Unusable) as stopped:
        load_settings(flags)
    assert "\n" not in stopped.value.message


@pytest.mark.parametrize("option", ["cookie", ""])
def test_an_unknown_auth_option_stops_the_start(option: str) -> None:
    """17.4 O13: it never silently means the query parameter."""
    with pytest.raises(Unusable, match="is none of both, header, key"):
        load_settings({"auth_option": option})


def test_the_longest_retention_is_what_the_log_has_a_class_for() -> None:
    assert load_settings({"retention": "365d"}).retention * 1000 == MAX_RETENTION_SECONDS * 1000 == CLASSES[-1].age


def test_an_unknown_key_of_the_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="unknown key 'prot'"):
        load_settings(config=config_in(tmp_path, "prot = 8080\n"))


def test_an_unknown_variable_only_warns() -> None:
    lines: list[str] = []
    Settings.load({}, {"AMS_PROT": "1", "AMS_TOKEN": "secret", "HOME": "/"}, warn=lines.append)
    assert lines == ["unknown setting AMS_PROT in the environment is ignored"]


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    rows = load_settings(
        {"service_token": "s3cret", "token_key": "ab" * 32, "push_worker_token": "w0rker"}
    ).display_rows()

    assert not any(secret in cell for row in rows for cell in row for secret in ("s3cret", "abab", "w0rker"))
    assert "w0rker" not in repr(Settings(push_worker_token="w0rker"))
    with pytest.raises(Unusable, match="service_token") as stopped:
        load_settings(config=config_in(tmp_path, "service_token = 314159\n"))
    assert "314159" not in stopped.value.message


@pytest.mark.parametrize("servers", ["kafka1.example:9092, kafka2.example:9093", "[::1]:9092", "10.0.0.1:9092"])
def test_servers_are_given_by_name_or_address(servers: str) -> None:
    url = "postgresql://ams@db1.example:5432,db2.example:5433/ams?application_name=a:b@c"
    assert load_settings({"registry": url}).registry == url
    assert load_settings({"log": "kafka", "kafka_servers": servers}).kafka_servers == servers


@pytest.mark.parametrize("url", [
    "postgresql://ams:s3cret@db.example/ams", "postgresql://ams:s3/cret@db.example/ams",
    "postgresql://ams@db.example/ams?password=s3cret",
    "postgresql://ams@db.example/ams?sslmode=require&sslpassword=s3cret",
])  # fmt: skip
def test_a_password_in_the_url_of_the_registry_stops_the_start_and_is_not_told(url: str) -> None:
    with pytest.raises(Unusable, match="registry_password") as stopped:
        load_settings({"registry": url})
    assert "cret" not in stopped.value.message


def test_what_is_shown_can_be_set_again() -> None:
    settings = Settings(min_free_bytes=Bytes(3 * 2**20))
    assert load_settings({name: value for name, _, value, _ in settings.display_rows()}) == settings


@given(st.text(st.characters(codec="utf-8")) | st.booleans() | st.integers(-(2**63), 2**63 - 1))
def test_what_is_written_into_toml_is_read_from_it(value: object) -> None:
    assert tomllib.loads(f"value = {toml_text(value)}\n")["value"] == value


SAMPLE: dict[str, Any] = {
    "bind_ip": "192.0.2.7", "port": 443, "zookeeper_hosts": ["zoo1.example:2181"], "kafka_znode": "",
    "store_host": "store.example", "store_db": "argo_msg", "certificate": "/etc/grid-security/hostcert.pem",
    "certificate_key": "/etc/grid-security/hostkey.pem",
    "certificate_authorities_dir": "/etc/grid-security/certificates", "per_resource_auth": "true",
    "service_token": "s3cret", "push_enabled": True, "push_tls_enabled": "false", "push_server_host": "push.example",
    "push_server_port": 5555, "verify_push_server": True, "push_worker_token": "w0rker", "log_level": "INFO",
    "log_facilities": ["syslog", "console"], "auth_option": "header", "proxy_hostname": "ams.example",
    "colour": "blue",
}  # fmt: skip


def convert_settings(**given: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    found = import_configuration(json.dumps(given))
    return tomllib.loads(found.toml), found.notes


def test_every_key_of_the_contract_becomes_a_setting_or_is_listed() -> None:
    values, notes = convert_settings(**SAMPLE)

    kept = "port per_resource_auth service_token push_enabled push_tls_enabled push_server_host push_server_port"
    kept += " certificate_authorities_dir verify_push_server push_worker_token auth_option proxy_hostname"
    assert values == {key: SAMPLE[key] for key in kept.split()} | {
        "host": "192.0.2.7", "cert": SAMPLE["certificate"], "key": SAMPLE["certificate_key"], "log_level": "info",
        "log_facilities": "console,syslog",
    }  # fmt: skip
    assert notes == (
        "bind_ip 192.0.2.7 is honoured now; the reference listened on all addresses",
        "zookeeper_hosts has no counterpart: the log is in the data folder",
        "kafka_znode has no counterpart: the log is in the data folder",
        "store_host has no counterpart: users, projects and topics are in the data folder",
        "store_db has no counterpart: users, projects and topics are in the data folder", "colour has no counterpart",
    )  # fmt: skip


def test_no_secret_is_told() -> None:
    _, notes = convert_settings(**SAMPLE)
    with pytest.raises(Unusable) as stopped:
        convert_settings(service_token=31337)

    assert not any(s in t for s in ("s3cret", "w0rker", "31337") for t in (*notes, stopped.value.message))


def test_without_an_address_it_listens_where_the_reference_does() -> None:
    certificate = {"certificate": "c.pem", "certificate_key": "k.pem"}

    assert convert_settings(**certificate, service_token=None, bind_ip=None) == (
        {"host": "0.0.0.0", "cert": "c.pem", "key": "k.pem"}, (),
    )  # fmt: skip


def test_an_unknown_auth_option_becomes_what_it_meant() -> None:
    values, notes = convert_settings(auth_option="cookie", bind_ip="localhost")
    assert values["auth_option"] == "key"
    assert notes[1:] == ("auth_option 'cookie' is unknown; the reference then reads the query parameter only: key",)


@pytest.mark.parametrize(
    ("level", "ours"), [("INFO", "info"), ("WARN", "warning"), ("FATAL", "error"), ("Debug", "debug")]
)
def test_log_levels_are_spelled_our_way(level: str, ours: str) -> None:
    assert convert_settings(log_level=level)[0]["log_level"] == ours


@pytest.mark.parametrize("given", [
    {"port": "eighty"}, {"port": 70000}, {"log_level": "LOUD"}, {"log_facilities": ["kafka"]},
    {"per_resource_auth": "perhaps"}, {"certificate": "only.pem"}, {"push_server_host": "push.example"},
    {"push_enabled": []}, {"service_token": 7}, {"bind_ip": 7}, {"proxy_hostname": "\ud800"},
])  # fmt: skip
def test_a_value_that_cannot_be_stops_the_import_in_one_line(given: dict[str, Any]) -> None:
    with pytest.raises(Unusable) as stopped:
        convert_settings(**given)
    assert "\n" not in stopped.value.message


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "7", "[" * 100_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(Unusable, match="this is no JSON"):
        import_configuration(text)


def tree(folder: Path, text: str | bytes) -> Value:
    path = folder / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    root = read_tree(str(path))
    assert root
    return root


def refusal_text(folder: Path, text: str | bytes) -> str:
    with pytest.raises(BadDocument) as raised:
        tree(folder, text).plain()
    return str(raised.value).replace(f"{folder}/", "")


def test_every_value_knows_its_line(tmp_path: Path) -> None:
    said = tree(tmp_path, "a: 1\nb:\n  c:\n    - x\n    - y\n").mapping()
    assert str(said["b"].place).endswith("file.yaml:2")
    assert [each.place.line for each in said["b"].mapping()["c"].values()] == [4, 5]


def test_values_are_those_of_json_and_names_are_texts(tmp_path: Path) -> None:
    text = 'text: on time\nnumber: 3\nbig: 1.5e3\nyes: true\nnothing: ~\nday: 2024-03-05\nlist: [1, "1", on, 1:30, ٣]\n'

    assert tree(tmp_path, text + '2024: {"a": [1, {"b": null}]}\n').plain() == {
        "text": "on time", "number": 3, "big": 1500.0, "yes": True, "nothing": None, "day": "2024-03-05",
        "list": [1, "1", "on", "1:30", "٣"], "2024": {"a": [1, {"b": None}]},
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_says_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    root = read_tree(str(path))
    assert root is None or root.mapping() == {}


@pytest.mark.parametrize(("text", "reason"), [
    ("a: 1\nb: [1\n", "file.yaml:3: not YAML: expected ',' or ']', but got '<stream end>'"),
    ("a: &x 1\nb: *x\n", "file.yaml:2: aliases (*name) are not taken; write it out"),
    (
        "a: &a [x,x]\n" + "".join(f"{b}: &{b} [{f'*{a},' * 9}]\n" for a, b in pairwise("abcdefghi")), "aliases (*name)",
    ),
    ("a: 1\na: 2\n", "file.yaml:2: 'a' is said twice"),
    ("a: !!python/object/apply:os.system [id]\n", "file.yaml:1: tags (!name) are not taken"),
    ("a: !!binary aGk=\n", "tags (!name) are not taken"),
    ("a: !own {b: 1}\n", "tags (!name) are not taken"),
    ("a: 1\n---\nb: 1\n", "file.yaml:2: not YAML: but found another document"),
    ("a: .inf\n", "file.yaml:1: '.inf' is no number in JSON"),
    ("a: .nan\n", "is no number in JSON"),
    ("a: 1e999\n", "'1e999' is no number in JSON"),
    (f"a: {'9' * 5000}\n", "is no number in JSON"),
    ("\x07: 1\n", "file.yaml is not YAML: it holds characters that no text has"),
    (b"a: \xff\n", "file.yaml is not text in UTF-8"),
    ("[1]: 2\n", "text is expected here, not a list"),
    ("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, f"deeper than {MAX_DEPTH} levels"),
    ("a: " + "{b: " * 10_000, f"deeper than {MAX_DEPTH} levels"),
    ("a" * (MAX_BYTES + 1), f"file.yaml is larger than {MAX_BYTES} bytes"),
])  # fmt: skip
def test_what_cannot_be_taken_is_said_with_its_line(tmp_path: Path, text: str | bytes, reason: str) -> None:
    assert reason in refusal_text(tmp_path, text)


@pytest.mark.parametrize(("read", "text", "reason"), [
    (Value.mapping, "[1]", "names with values are expected here, not a list"),
    (Value.mapping, "x", "names with values are expected here, not 'x'"),
    (Value.values, "a: 1", "a list is expected here, not names with values"),
    (Value.text, "[1]", "text is expected here, not a list"), (Value.text, "~", "text is expected here, not nothing"),
    (Value.switch, "1", "true or false is expected here"),
    (lambda value: value.number(0, 5), "6", "a whole number from 0 to 5 is expected here"),
    (lambda value: value.number(0, 5), "true", "a whole number"),
    (lambda value: value.number(0, 5), "1.0", "a whole number"),
    (lambda value: value.mapping(("b",)), "a: 1", "file.yaml:1: unknown key 'a'; there are b"),
])  # fmt: skip
def test_another_type_than_expected_is_said(tmp_path: Path, read: object, text: str, reason: str) -> None:
    with pytest.raises(BadDocument, match=reason.replace("[", r"\[")):
        read(tree(tmp_path, text))  # type: ignore[operator]  # a method or a function


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadDocument, match="nowhere.yaml: No such file"):
        read_tree(str(tmp_path / "nowhere.yaml"))


@given(text=st.text(alphabet=st.sampled_from("ab:-[]{},&*!|>'\"#%@? \n\t01~"), max_size=60))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text)
    try:
        root = read_tree(str(path))
        if root:
            root.plain()
    except BadDocument:
        pass


def test_texts_are_said_in_any_order_and_a_choice_as_it_is(tmp_path: Path) -> None:
    said = tree(tmp_path, "many: [b, a, b]\nnone: ~\none: linear\n").mapping()

    assert (said["many"].texts(), said["none"].texts()) == (("a", "b"), ())
    assert said["one"].one_of("linear", "none") == "linear"
    with pytest.raises(BadDocument, match=r"file\.yaml:3: 'linear' is none of slow, fast"):
        said["one"].one_of("slow", "fast")
