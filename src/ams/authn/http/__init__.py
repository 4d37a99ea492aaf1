"""The certificate service over HTTPS (contract 2 to 4).

- app: the ASGI application, which sends every answer and every error
- routes: the table of routes and their handlers
- authentication: authentication of management requests
- json_bodies: parses and writes JSON bodies like the reference
- errors: maps errors to status codes and the error envelope
- tls: the port: TLS that requests a certificate from every client, and leaves its verification to the login
- proxies: clients behind a proxy: their address and certificate, as stated by the proxy
"""
