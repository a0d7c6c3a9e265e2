#!/usr/bin/env python3
"""Prints the dashboard of servers and GPUs as JSON, which Grafana imports without changes (docs/deploy.md):

  deploy/grafana/dashboard.py > perseus.json
"""
import json

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
VARIABLES = [
    {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
    {"name": "node", "label": "Node", "type": "query", "datasource": SOURCE,
     "query": "label_values(perseus_gpu_up, Hostname)", "refresh": 2, "includeAll": True, "multi": True,
     "allValue": ".*", "current": {"text": "All", "value": "$__all"}},
    {"name": "price", "label": "Price of a kWh ($)", "type": "textbox", "query": "0.12",
     "current": {"text": "0.12", "value": "0.12"}},
]
OPTIONS = {
    "stat": {},
    "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
    "heatmap": {"calculate": False, "yAxis": {"unit": "s"}, "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
                "cellGap": 1},
}
TARGET = {"stat": {"instant": True}, "timeseries": {}, "heatmap": {"format": "heatmap"}}
WIDTH, HEIGHT = 24, 8  # The board's width and a panel's height, in cells of Grafana's grid.


def panel(title, unit, *queries, type="timeseries", about="", since=""):
    """`queries`: pairs of a query and the legend of its series. `since`: another begin of the panel's time range."""
    targets = [{"refId": "ABC"[i], "expr": query, "legendFormat": legend, **TARGET[type]}
               for i, (query, legend) in enumerate(queries)]
    return {"type": type, "title": title, **({"description": about} if about else {}), "datasource": SOURCE,
            **({"timeFrom": since} if since else {}),
            "targets": targets, "fieldConfig": {"defaults": {"unit": unit}, "overrides": []}, "options": OPTIONS[type]}


def rate(metric, by, function="rate"):
    return f"sum by ({by}) ({function}({metric}[$__rate_interval]))"


def increase(metric, by):
    return rate(metric, by, "increase")


def quantile(part, metric, by="le"):
    return f"histogram_quantile({part}, {rate(f'perseus_server_{metric}_duration_seconds_bucket', by)})"


def of_job(metric):
    """A metric of each job. All replicas publish the same value."""
    return f"max by (key) (perseus_job_{metric})"


def of_gpu(metric):
    """A metric of each GPU of the chosen nodes."""
    return metric + '{Hostname=~"$node"}'


GPU = "{{Hostname}} {{gpu}}"
# What each job would draw at maximum frequency, at its measured pace. The saving of a job without fresh steps
# or without a lease is absent, so the job is in no mean.
BASELINE_W = f"({of_job('step_baseline_joules')} / {of_job('step_measured_seconds')})"
SAVED_SHARE = (f"sum({of_job('saving_ratio')} * {BASELINE_W}) / "
               f"sum({BASELINE_W} and on (key) {of_job('saving_ratio')})")
SAVED_KWH = ("(sum(increase(perseus_server_baseline_joules_total[$__range])) - "
             "sum(increase(perseus_server_measured_joules_total[$__range]))) / 3.6e6")
# Each section has lines of panels. The panels of a line share its width.
SECTIONS = {
    "Cost": [[
        panel("Power now", "watt", ("sum(max by (UUID) (DCGM_FI_DEV_POWER_USAGE))", "all GPUs"), type="stat",
              about="All GPUs with an agent"),
        panel("Saved now", "percentunit", (SAVED_SHARE, "all jobs"), type="stat",
              about="Measured, against maximum frequency. Without jobs that end no steps or whose ranks have no lease"),
        panel("Energy saved this month", "kwatth", (SAVED_KWH, "all jobs"), type="stat", since="now/M"),
        panel("Money saved this month", "currencyUSD", (f"{SAVED_KWH} * $price", "all jobs"), type="stat", since="now/M"),
        panel("Jobs that need a person", "none", (f"sum({of_job('needs_person')})", "jobs"), type="stat",
              about="perseus jobs and perseus job show say why"),
    ]],
    "Fleet": [[
        panel("Nodes connected", "short", ("sum(perseus_server_streams)", "nodes"), type="stat",
              about="Event streams, one per node"),
        panel("Jobs with reports", "short", ("sum(perseus_server_reporting_jobs)", "jobs"), type="stat",
              about="A job with nodes on several replicas counts once per replica"),
        panel("Replicas ready", "short", ("sum(perseus_server_ready)", "ready"), type="stat"),
        panel("GPUs leased", "short", ("sum(perseus_gpu_leased)", "GPUs"), type="stat"),
    ], [
        panel("Event streams by replica", "short", ("perseus_server_streams", "{{instance}}"), about="One per node"),
        panel("Jobs by replica", "short", ("perseus_server_reporting_jobs", "{{instance}}")),
        panel("Connections", "short", ("perseus_server_connections", "{{instance}}"),
              ("increase(perseus_server_refused_connections_total[$__rate_interval])", "refused by {{instance}}")),
    ], [
        panel("Requests by route", "reqps", (rate("perseus_server_requests_total", "route"), "{{route}}")),
        panel("Request latency by route, 99th percentile", "s", (quantile(0.99, "request", "le, route"), "{{route}}")),
        panel("Errors", "reqps",
              (rate('perseus_server_requests_total{status=~"[45].."}', "route, status"), "{{status}} {{route}}")),
    ], [
        panel("Plannings by outcome", "ops", (rate("perseus_server_plannings_total", "status"), "{{status}}")),
        panel("Planning time", "s", (quantile(0.5, "planning"), "median"), (quantile(0.99, "planning"), "99th percentile")),
        panel("Events to nodes", "ops", (rate("perseus_server_events_total", "instance"), "{{instance}}")),
        panel("Faults", "short",
              ("increase(perseus_server_store_failures_total[$__rate_interval])", "database, {{instance}}"),
              ("increase(perseus_server_dropped_streams_total[$__rate_interval])", "dropped streams, {{instance}}")),
    ]],
    "Jobs": [[
        panel("Nodes by state", "none", ("max by (state) (perseus_server_nodes)", "{{state}}")),
        panel("Stragglers by source and state", "none",
              ("max by (source, state) (perseus_server_stragglers)", "{{source}}, {{state}}")),
        panel("Planning backlog", "none", ("max(perseus_server_planning_backlog_jobs)", "jobs"),
              ("max(perseus_server_planning_backlog_age_seconds)", "oldest (s)")),
    ], [
        panel("Step time: measured over promised", "percentunit",
              (f"{of_job('step_measured_seconds')} / {of_job('step_promised_seconds')} - 1", "{{key}}")),
        panel("Step energy: measured over promised", "percentunit",
              (f"{of_job('step_measured_joules')} / {of_job('step_promised_joules')} - 1", "{{key}}")),
        panel("Measured saving against maximum frequency", "percentunit",
              (of_job("saving_ratio"), "{{key}}"),
              about="Absent while a job ends no steps, or if a rank has no lease"),
    ], [
        panel("Time since the last step", "s", (of_job("last_step_age_seconds"), "{{key}}")),
        panel("Ranks that do not run", "none", (f"{of_job('ranks')} - {of_job('ranks_running')}", "{{key}}")),
        panel("Ranks without a lease", "none", (of_job("ranks_without_lease"), "{{key}}")),
    ], [
        panel("Power saved", "watt", (f"{of_job('saving_ratio')} * {BASELINE_W}", "{{key}}")),
        panel("Plan age", "s", (of_job("plan_age_seconds"), "{{key}}")),
        panel("Ranks with limited clocks", "none", (of_job("limited_ranks"), "{{key}}")),
    ], [
        panel("Jobs with a broken promise", "none", (f"sum({of_job('promise_broken')})", "jobs"),
              (f"sum({of_job('plan_taken_back')})", "plan taken back")),
        panel("Notices that measurement contradicts", "none",
              (increase("perseus_server_straggler_notices_total", "event"), "{{event}}")),
        panel("Refused writes", "none",
              (increase("perseus_server_store_refused_writes_total", "instance"), "{{instance}}")),
    ]],
    "Node": [[
        panel("Power", "watt", (of_gpu("DCGM_FI_DEV_POWER_USAGE"), GPU)),
        panel("SM clock", "hertz", (of_gpu("DCGM_FI_DEV_SM_CLOCK") + " * 1e6", GPU)),
        panel("SM clock requested by the plan", "hertz",
              (of_gpu("perseus_gpu_intended_sm_clock_hertz"), "{{key}}: " + GPU)),
    ], [
        panel("Intended slowdown", "percentunit",
              (f"max by (key) ({of_gpu('perseus_gpu_intended_slowdown_ratio')}) - 1", "{{key}}"),
              about="How much longer an iteration takes on purpose, by the job's plan. A larger slowdown is a straggler"),
        panel("Temperature", "celsius", (of_gpu("DCGM_FI_DEV_GPU_TEMP"), GPU)),
        panel("GPUs below the requested clock", "short",
              (f"sum by (reason) ({of_gpu('perseus_gpu_clock_limited')})", "{{reason}}"), about="By reason"),
    ], [
        panel("Switch latency", "s", (increase(of_gpu("perseus_gpu_request_to_driver_seconds_bucket"), "le"), "{{le}}"),
              type="heatmap", about="From a job's request to the driver call"),
        panel("Driver calls", "s", (increase(of_gpu("perseus_gpu_driver_call_seconds_bucket"), "le"), "{{le}}"),
              type="heatmap", about="Duration of the calls"),
        panel("Clock switches", "ops", (rate(of_gpu("perseus_gpu_clock_switches_total"), "Hostname"), "{{Hostname}}")),
        panel("Clock requests without a clock change", "ops",
              (rate(of_gpu("perseus_gpu_clock_requests_dropped_total"), "reason"), "{{reason}}")),
    ], [
        panel("Leases", "short", ("sum by (instance) (perseus_agent_leases)", "{{instance}}")),
        panel("Leases ended", "short", (increase("perseus_agent_leases_ended_total", "how"), "{{how}}")),
        panel("GPUs restored", "short", (increase(of_gpu("perseus_gpu_restores_total"), "Hostname"), "{{Hostname}}"),
              (increase(of_gpu("perseus_gpu_restore_failures_total"), "Hostname"), "{{Hostname}}: failed attempts")),
    ], [
        panel("GPUs below their highest clock", "short",
              (f"sum by (reason) ({of_gpu('perseus_gpu_slow')})", "{{reason}}"),
              about='By reason. Only "plan" is intended.'),
        panel("Clock requests that waited", "ops",
              (rate(of_gpu("perseus_gpu_clock_requests_postponed_total"), "Hostname"), "{{Hostname}}"),
              about="For the limit on clock changes of perseus agent --max-changes"),
    ]],
}


def placed():
    """All panels with their ids and places."""
    y, found = 0, []

    def place(panel, x, width, height):
        found.append({"id": len(found) + 1, **panel, "gridPos": {"h": height, "w": width, "x": x, "y": y}})

    for section, lines in SECTIONS.items():
        place({"type": "row", "title": section, "collapsed": False, "panels": []}, 0, WIDTH, 1)
        y += 1
        for line in lines:
            width = WIDTH // len(line)
            for i, each in enumerate(line):
                place(each, i * width, width, HEIGHT)
            y += HEIGHT
    return found


print(json.dumps({
    "uid": "perseus", "title": "Perseus",
    "description": "The servers of a fleet, and the GPUs of its nodes (docs/deploy.md)",
    "tags": ["perseus"], "schemaVersion": 38, "version": 1, "editable": True, "refresh": "30s",
    "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "templating": {"list": VARIABLES},
    "panels": placed(),
}, indent=1))
