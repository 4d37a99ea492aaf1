"""Logging in with certificates: `python -m demo.certificates`, or `make certificates-demo`.

`ams serve` and `ams authn serve` run on one host name. Sites have host certificates of a CA made for the demo, which
the certificate service trusts by a folder as the grid's are: the CA's certificate, and the list of what it has
withdrawn. With the official client library every site logs in by its certificate, gets its token, and publishes; a
collector logs in likewise and pulls. Then others try, whose certificates are withdrawn, expired, not bound, or of an
unknown CA.

Read it in this order: `authority` (certificates), `tenancy` (users and bindings), `working` (logging in, publishing,
pulling, and being refused).
"""
