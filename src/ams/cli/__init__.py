"""The program `ams`: serving, operating, and a client for people and scripts.

Most modules are named after their commands. The others:

    main             the entry point: finds the command and loads only that one
    command          declares client commands
    arguments        shared arguments and options; shell completion
    times            durations and times
    output           plain columns or JSON on stdout, everything else on stderr
    exit_codes       exit codes, and errors in one line
    extras           optional dependencies of commands
    secret_file      a file for a secret that is shown once
    serve            `ams serve`, `push` and `authn serve`
    installation     `ams check`, `backup`, `restore`, `export`, `import`, `settings` and `admin rotate-key`
    status           `ams status`, `version`, `doctor` and `metrics`
    users            `ams users`, `members`, `registrations` and `admin`
    tokens           `ams token` and `open`
    issuers          `ams issuers` and `bindings`
    subscriptions    `ams subs` and `snapshots`, and options of parallel subscriptions
    rights           `ams acl`, and reading and writing rights
    messages         `ams publish`, `pull`, `ack` and `tail`
    pipeline         `ams pipeline` and `archive`
"""
