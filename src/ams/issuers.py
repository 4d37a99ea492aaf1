"""Administration of OpenID Connect issuers: those of the settings and those that were set."""
