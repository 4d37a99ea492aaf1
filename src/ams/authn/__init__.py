"""`ams authn serve`: the certificate service. It exchanges a bound client certificate for a service's token.

- settings: flags, environment, TOML, or the reference's JSON
- values: service types, auth methods, bindings, keys; clients
- certificates/: validates a certificate: chain, dates, usage, revocation, hosts
- store/: tables on SQLite or PostgreSQL, and their records
- management: use cases of an administrator, and their rules (contract 5 to 7)
- login: exchanges a certificate for a token, fetched from a service (contract 8)
- http/: TLS that requests certificates, proxies, the routes, errors on the wire
- program: the data folder and the parts, from a start to an orderly stop

It knows AMS only by its HTTP API. "Contract" is the wire of the certificate service, without the defects that its
section 15 excludes (docs/reference/authn.md).
"""
