"""Arguments and options that several commands have; names are completed from the service."""

from typing import Annotated

import typer

from ams.cli.completing import (
    member_names,
    project_names,
    resource_names,
    schema_names,
    subscription_names,
    topic_names,
    user_names,
)
from ams.cli.output import Format

ProjectName = Annotated[
    str,
    typer.Argument(metavar="PROJECT", help="Name of the project.", show_default=False, autocompletion=project_names),
]
TopicName = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False, autocompletion=topic_names),
]
SubscriptionName = Annotated[
    str,
    typer.Argument(
        metavar="SUB", help="Name of the subscription.", show_default=False, autocompletion=subscription_names
    ),
]
SchemaName = Annotated[
    str,
    typer.Argument(metavar="SCHEMA", help="Name of the schema.", show_default=False, autocompletion=schema_names),
]
UserName = Annotated[
    str,
    typer.Argument(metavar="USER", help="Name of the user.", show_default=False, autocompletion=user_names),
]
MemberName = Annotated[
    str,
    typer.Argument(metavar="USER", help="Name of the member.", show_default=False, autocompletion=member_names),
]
MemberNames = Annotated[
    list[str],
    typer.Argument(metavar="USER...", help="Names of members.", show_default=False, autocompletion=member_names),
]
Resource = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE", help="topics/TOPIC or subs/SUB.", show_default=False, autocompletion=resource_names
    ),
]

AttributePairs = Annotated[
    list[str] | None, typer.Option("--attr", metavar="NAME=VALUE", help="Attribute; may be repeated.")
]
DataFolder = Annotated[str, typer.Option("--data", help="The data folder.", envvar="AMS_DATA")]
"""Its default is `DATA_FOLDER`."""
Output = Annotated[Format, typer.Option("--output", "-o", help="For people or for programs.")]
"""Its default is `Format.TABLE`."""

DATA_FOLDER = "./ams-data"
