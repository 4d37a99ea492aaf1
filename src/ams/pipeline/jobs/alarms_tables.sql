-- Made by the job `alarms` where they are missing; every statement may be run again.

CREATE TABLE IF NOT EXISTS alarms (
    alarm uuid PRIMARY KEY,           -- made of project, kind, report, level, site, service, hostname and metric
    project text NOT NULL,
    kind text NOT NULL,               -- alarm, event or alert: where it was told
    report text NOT NULL,             -- of events the report, of alerts the environment, of alarms empty
    level text NOT NULL,              -- endpoint_group, service, endpoint or metric
    site text NOT NULL,               -- empty where an alarm does not say it
    service text NOT NULL,            -- empty above its level, as are hostname and metric
    hostname text NOT NULL,
    metric text NOT NULL,
    status text NOT NULL,             -- as last reported
    since timestamptz NOT NULL,       -- of the first report of the unbroken run of this status
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    reports bigint NOT NULL,          -- different ones: told twice is told once
    changes bigint NOT NULL,          -- how often the status became another one
    details text,
    cause text,                       -- above the level of metrics: service/hostname/metric that caused it
    monitoring_host text,
    vo text,
    roc text,
    url_history text,
    url_help text
);

CREATE TABLE IF NOT EXISTS alarm_history (
    alarm uuid NOT NULL REFERENCES alarms,
    at timestamptz NOT NULL,
    status text NOT NULL,
    details text,
    cause text,
    monitoring_host text,
    vo text,
    roc text,
    url_history text,
    url_help text,
    published timestamptz NOT NULL,   -- of the newest message that told this, as are topic and offset
    topic text NOT NULL,
    "offset" bigint NOT NULL,
    PRIMARY KEY (alarm, at, status)
);

CREATE INDEX IF NOT EXISTS alarms_by_place ON alarms (project, site, service, hostname);
CREATE INDEX IF NOT EXISTS alarms_open ON alarms (project, since) WHERE status <> 'OK';

CREATE OR REPLACE VIEW alarm_reports AS
    SELECT *, array_position(ARRAY['OK', 'WARNING', 'UNKNOWN', 'MISSING', 'DOWNTIME', 'CRITICAL'], status) AS badness
    FROM alarm_history;

CREATE OR REPLACE VIEW alarm_changes AS
    WITH ordered AS (
        SELECT alarm, at, status, badness, details, cause,
            lag(status) OVER (PARTITION BY alarm ORDER BY at, badness) AS previous
        FROM alarm_reports
    ), changes AS (
        SELECT *, lead(at) OVER (PARTITION BY alarm ORDER BY at, badness) AS until
        FROM ordered WHERE previous IS DISTINCT FROM status
    )
    SELECT changes.alarm, project, kind, report, level, site, service, hostname, metric,
        changes.at, changes.until, previous, changes.status, changes.details, changes.cause
    FROM changes JOIN alarms USING (alarm);

CREATE OR REPLACE VIEW open_alarms AS
    SELECT *, clock_timestamp() - since AS age FROM alarms WHERE status <> 'OK';
