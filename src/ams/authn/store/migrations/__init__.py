"""How the certificate service's tables came to be what they are, one file a step; run by
`ams.storage.database.schema`.
"""
