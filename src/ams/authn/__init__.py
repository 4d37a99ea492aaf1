"""`ams authn serve`: the certificate service. A client whose certificate is bound gets a service's token for it.

settings                settings by flags, environment, TOML, or the reference's JSON
values                  service types, auth methods, bindings, keys; clients
certificates/           chain, dates, usage, revocation, hosts: is this certificate to be believed now
store/                  tables on SQLite or PostgreSQL, and the records in them
management              use cases of an administrator, and the rules for them (contract 5 to 7)
login                   from a certificate to a token, which a service is asked for (contract 8)
http/                   TLS that asks for certificates, proxies, the routes, errors on the wire
program                 the data folder and the parts, opened in order, from a start to an orderly stop

It knows AMS by its HTTP API only. "Contract" is the wire of the certificate service, with what section 15 of it says
must not be copied (docs/reference/authn.md).
"""
