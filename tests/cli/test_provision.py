from pathlib import Path

import pytest

from ams.cli.provision import read_ini
from ams.core.errors import BadSettings

WHOLE = """
[AMS]
ams_project: egi_cloud_info
goc_db_host: goc.example.org/gocdbpi/public/?method=get_service_endpoint&service_type={{service-type}}
service-types: org.openstack.nova, eu.egi.cloud.vm-management.occi
users_role: publisher
ams_consumer: cloud-info-reader
cert: /etc/grid-security/hostcert.pem
cert_key: /etc/grid-security/hostkey.pem
ams_token: 50%secret
ams_host: ams.example.org
ams_email: grid@example.org

[AUTHN]
authn_token: key
authn_host: authn.example.org:8443
service_uuid: 1-2
service_host: ams.example.org

[LOGS]
syslog_socket: /dev/log
"""


def test_every_key_of_the_scripts_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "scripts.cfg"
    path.write_text(WHOLE)

    ini = read_ini(str(path))

    assert ini.unknown == ()
    assert all(getattr(ini, name) for name in ini.__slots__ if name != "unknown")
    assert ini.service_types == ("org.openstack.nova", "eu.egi.cloud.vm-management.occi")
    assert ini.feed.startswith("https://goc.example.org/")
    assert (ini.endpoint, ini.authn_endpoint) == ("https://ams.example.org", "https://authn.example.org:8443")
    assert ini.token == "50%secret"
    assert "secret" not in repr(ini)


def test_a_file_that_cannot_be_read_is_told_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "scripts.cfg"
    path.write_text("ams_token: secret\n")

    with pytest.raises(BadSettings) as told:
        read_ini(str(path))
    assert "secret" not in str(told.value)
    with pytest.raises(BadSettings, match="No such file"):
        read_ini(str(tmp_path / "none.cfg"))
