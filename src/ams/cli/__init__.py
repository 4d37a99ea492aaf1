"""The program `ams`: serving, operating, and a client for people and scripts.

main             the entry point: finds the command and loads only that one
command          how commands of the client are declared
arguments        arguments and options that several commands have; durations and times; shell completion
output           plain columns or JSON on stdout, everything else on stderr
exits            exit codes, and the one line an error becomes
extras           what some commands need beside the command line
secret_file      a file for a secret that is shown once
serve            `ams serve`, `push` and `authn serve`
installation     `ams check`, `backup`, `restore`, `export`, `import`, `settings` and `admin rotate-key`
migrate          `ams migrate`; migrate_authn: that of the certificate service
status           `ams status`, `version`, `doctor` and `metrics`
top              `ams top`, and live views
audit            `ams audit`
bench            `ams bench`
projects         `ams projects`
users            `ams users`, `members`, `registrations` and `admin`
tokens           `ams token` and `open`
issuers          `ams issuers` and `bindings`
topics           `ams topics`
subscriptions    `ams subs` and `snapshots`; parallel_options: their options of parallel subscriptions
rights           `ams acl`, and rights as a command line says them
schemas          `ams schemas`
messages         `ams publish`, `pull`, `ack` and `tail`
work             `ams work`
dead             `ams dead`
apply            `ams apply`
provision        `ams provision`
authn/           `ams authn`, but for serving
pipeline         `ams pipeline` and `archive`
profiles         `ams profile`
"""
