"""`ams admin rotate-key`: a new key for the stored tokens, in a data folder whose service is stopped."""

import asyncio

from ams.cli.arguments import DATA_FOLDER, DataFolder, Output
from ams.cli.output import Format, document, emit
from ams.settings import environment


def rotate_key(
    data: DataFolder = DATA_FOLDER,
    output: Output = Format.TABLE,
) -> None:
    """Encrypt the stored tokens with a new key; the service must be stopped, and all tokens stay valid."""
    # Here, not above: no other admin command needs the registry.
    from ams.rotating import rotate_key

    given = environment()
    own, new = given.get("AMS_TOKEN_KEY", ""), given.get("AMS_NEW_TOKEN_KEY", "")
    rotated = asyncio.run(rotate_key(data, token_key=own, new_token_key=new))
    if output is Format.JSON:
        emit(document({"tokens": rotated.tokens, "file": rotated.file}))
        return
    where = f"The new key is in {rotated.file}." if rotated.file else "Set AMS_TOKEN_KEY to the new key before a start."
    emit(f"Encrypted anew: {rotated.tokens:,} tokens; they stay valid.\n{where} Backups taken before need the old key.")
