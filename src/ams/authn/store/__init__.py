"""What the certificate service keeps: tables and records, on the engines of `ams.database`."""
