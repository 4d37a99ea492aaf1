-- Puts the rows of a task (`incoming`) into the tables, in one transaction.

-- Take the alarms, in the order of their ids, and hold them; this changes nothing of those that are there.
INSERT INTO alarms AS kept (
    alarm, project, kind, report, level, site, service, hostname, metric, status, since, first_seen, last_seen, reports,
    changes
)
SELECT DISTINCT ON (alarm)
    alarm, project, kind, report, level, site, service, hostname, metric, status, at, at, at, 0, 0
FROM incoming ORDER BY alarm
ON CONFLICT (alarm) DO UPDATE SET project = kept.project;

-- Add to the history; of messages that tell the same report the newest one counts.
INSERT INTO alarm_history AS kept (
    alarm, at, status, details, cause, monitoring_host, vo, roc, url_history, url_help, published, topic, "offset"
)
SELECT DISTINCT ON (alarm, at, status)
    alarm, at, status, details, cause, monitoring_host, vo, roc, url_history, url_help, published, topic, "offset"
FROM incoming ORDER BY alarm, at, status, published DESC, topic DESC, "offset" DESC
ON CONFLICT (alarm, at, status) DO UPDATE SET
    (details, cause, monitoring_host, vo, roc, url_history, url_help, published, topic, "offset")
    = (excluded.details, excluded.cause, excluded.monitoring_host, excluded.vo, excluded.roc, excluded.url_history,
        excluded.url_help, excluded.published, excluded.topic, excluded."offset")
    WHERE (kept.published, kept.topic, kept."offset") < (excluded.published, excluded.topic, excluded."offset");

-- Read the history of these alarms anew.
WITH reports AS (
    SELECT * FROM alarm_reports WHERE alarm IN (SELECT alarm FROM incoming)
), ordered AS (
    SELECT *, lag(status) OVER (PARTITION BY alarm ORDER BY at, badness) AS previous FROM reports
), counted AS (
    SELECT alarm, min(at) AS first_seen, count(*) AS reports,
        max(at) FILTER (WHERE previous IS DISTINCT FROM status) AS since,
        count(*) FILTER (WHERE previous <> status) AS changes
    FROM ordered GROUP BY alarm
), last AS (
    SELECT DISTINCT ON (alarm) * FROM reports ORDER BY alarm, at DESC, badness DESC
)
UPDATE alarms SET
    status = last.status, since = counted.since, first_seen = counted.first_seen, last_seen = last.at,
    reports = counted.reports, changes = counted.changes, details = last.details, cause = last.cause,
    monitoring_host = last.monitoring_host, vo = last.vo, roc = last.roc, url_history = last.url_history,
    url_help = last.url_help
FROM counted JOIN last USING (alarm) WHERE alarms.alarm = counted.alarm;
