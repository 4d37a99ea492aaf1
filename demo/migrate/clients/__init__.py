"""Programs that publish and consume all the time, and do not know that the service behind is changed.

    python -m demo.migrate.clients WAY publish|consume URL BOOK

The token is in AMS_TOKEN, the certificate to trust in AMS_CA. `ways` has how each asks, `book` what it writes down.
SIGTERM ends one that publishes after the call it makes, and one that consumes when nothing is left.
"""
