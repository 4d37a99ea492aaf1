"""`ams authn serve`: the certificate service. Who shows a certificate that is bound gets a service's token for it.

settings, json_config   what can be set, by flags, environment, TOML, or the reference's JSON
values                  service types, auth methods, bindings, keys; who asks, and what was presented
certificates/           chain, dates, usage, revocation, hosts: is this certificate to be believed now
store/                  tables on SQLite or PostgreSQL, and the records in them
rules                   what all of these must keep, and the texts it is told in
asking, services        asks a service for the token of one of its users
service_types, auth_methods, bindings, keys
                        what an administrator does (contract 5 to 7)
showing                 paths and reasons as they may be in a log
subjects, login         from a certificate to a token (contract 8)
http/                   TLS that asks for certificates, proxies, the routes, errors on the wire
assembly                the parts, opened in order and put together
program                 all of it, from a start to an orderly stop

It knows AMS by its HTTP API only. "Contract" is the wire of the certificate service, with what section 15 of it says
must not be copied (docs/reference/authn.md).
"""
