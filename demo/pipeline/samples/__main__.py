"""Publish a made-up day: `python -m demo.pipeline.samples WORLD`, with the options that all commands of `ams` take."""

import sys

from ams.cli.main import COMMANDS, CommandEntry, main

NAME = "sample"
ENTRY = CommandEntry("demo.pipeline.samples.worlds:sample", "Publish a made-up day of one of EGI's services.")

if __name__ == "__main__":
    COMMANDS[NAME] = ENTRY
    main([NAME, *sys.argv[1:]])
