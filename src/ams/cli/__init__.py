"""The program `ams`: serving, operating, and a client for people and scripts.

`main.COMMANDS` names the module of each command. The others:

    main             the entry point: finds the command and loads only that one
    command          declares client commands
    arguments        shared arguments and options; shell completion
    times            durations and times
    output           plain columns or JSON on stdout, everything else on stderr
    exit_codes       exit codes, and errors in one line
    extras           optional dependencies of commands
    secret_file      a file for a secret that is shown once
"""
