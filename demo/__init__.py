"""The main job: a day in the life of a messaging service, small enough to watch.

    python -m demo                  make the data folder, start the service, run the job, leave
    python -m demo --keep-serving   the same, then keep the service running until Ctrl-C

Two kinds of real-looking traffic go through a real service over TLS, with the official client library:

    accounting.py ──publisher──▶ topic gLite-APEL  ──▶ subscription apel_loader    ──consumer──┐
    monitoring.py ──publisher──▶ topic metric_data ──▶ subscription archive_metric ──consumer──┤
                                                                  │                            ▼
                                                  │    ledger.py: what came out, byte for byte
                                                  └▶ subscription watch_metric ──push──▶ pushing.py, an https receiver

Read it in this order: `accounting` and `monitoring` (what is sent), `tenancy` (who may do what), `traffic` (publish,
pull, acknowledge), `ledger` (the comparison), `pushing` (a receiver), `job` (all of it together), `service` and
`report` (around it).
"""
