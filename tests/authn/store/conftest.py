from tests.authn.http.conftest import quick, service, url

__all__ = ["quick", "service", "url"]
