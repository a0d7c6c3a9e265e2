"""A server, two nodes and a training on virtual GPUs, and what must arrive of their exports."""
import os
import re
import subprocess
import sys

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PAGE_SPANS = {"POST /v1/jobs", "PUT /v1/jobs/{job}/profile"}


def require(condition, *what):
    if not condition:
        sys.exit(f"{os.path.basename(sys.argv[0])}: " + " ".join(map(str, what)))


def start_server(processes, perseus, name, url, *arguments):
    processes.start(name, [perseus, "serve", *arguments],
                    OTEL_EXPORTER_OTLP_ENDPOINT=url,
                    OTEL_EXPORTER_OTLP_HEADERS="api-key=hush", OTEL_SERVICE_NAME="perseus-test",
                    OTEL_RESOURCE_ATTRIBUTES="team=a%20b", OTEL_METRIC_EXPORT_INTERVAL="500",
                    OTEL_BSP_SCHEDULE_DELAY="100")


def train(processes, perseus, example, servers):
    """The job is registered at the first server. Each node uses one of them."""
    truth = processes.scratch / "truth.csv"
    subprocess.run([perseus, "synth", "--gpu", "a100", "--stages", "4", "--work-scale", "0.3", "-o",
                    truth], check=True, stdout=subprocess.DEVNULL)
    for file in example.glob("*.toml"):
        (processes.scratch / file.name).write_bytes(file.read_bytes())
    trainer = [perseus, "trainer", "--job", "job.toml"]
    for n, server in zip("ab", (servers[0], servers[-1])):
        processes.start(f"agent-{n}", [perseus, "agent", "--devices", f"virtual:{n}.toml", "--socket",
                                       f"{n}.sock", "--state", f"{n}.json", "--metrics", "off"])
        processes.start(f"node-{n}", [perseus, "node", "--server", server, "--name", n, "--job", f"run={n}"])
        trainer += ["--node", f"{n}.toml", "--agent", f"{n}.sock", "--job-directory", n]
    subprocess.run([perseus, "job", "register", "run", "--job", "job.toml", "--profile", truth, "--server",
                    servers[0]], check=True, stdout=subprocess.DEVNULL, cwd=processes.scratch,
                   env={**os.environ, "TRACEPARENT": f"00-{TRACE}-{CALLER}-01"})
    processes.soon(lambda: all((processes.scratch / f"{n}.sock").exists() for n in "ab"), "agents listen")
    processes.start("trainer", trainer)


def check_trace(spans):
    by_id = {span.span_id.hex(): (span, resource) for span, resource in spans}
    named = {}
    for span, resource in spans:
        named.setdefault(span.name, []).append((span, resource))
        require(span.start_time_unix_nano <= span.end_time_unix_nano, span)
    for name in PAGE_SPANS:
        require(len(named.get(name, [])) == 1, name, sorted(named))
        span, resource = named[name][0]
        require(span.parent_span_id.hex() == CALLER and span.kind == span.SPAN_KIND_SERVER, span)
        require(resource["service.name"] == "perseus-test" and resource["team"] == "a b", resource)
    for span, resource in named["first step on plan"]:
        applied, node = by_id[span.parent_span_id.hex()]
        require(applied.name == "apply assignment" and node == resource, applied, node)
        require(node["service.name"] == "perseus-node" and node["team"] == "a b", node)
        require(applied.end_time_unix_nano <= span.end_time_unix_nano, applied, span)
        plan, _ = by_id[applied.parent_span_id.hex()]
        require(plan.name == "plan", plan)
        request, _ = by_id[plan.parent_span_id.hex()]
        require(request.name in PAGE_SPANS, request)
        require(request.start_time_unix_nano <= plan.start_time_unix_nano <= plan.end_time_unix_nano <=
                applied.start_time_unix_nano, request, plan, applied)


def check_metrics(metrics, text):
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    require(set(metrics) <= set(types), set(metrics) - set(types))
    require("perseus_server_requests_total" in metrics, sorted(metrics))
    for name, exports in metrics.items():
        kinds = {"counter": "sum", "gauge": "gauge", "histogram": "histogram"}
        metric, resource = exports[-1]
        require(metric.WhichOneof("data") == kinds[types[name]], name)
        require(resource["service.name"] == "perseus-test", resource)
        data = getattr(metric, metric.WhichOneof("data"))
        if types[name] != "gauge":
            require(data.aggregation_temporality == 2, metric)
        if types[name] == "counter":
            require(data.is_monotonic, metric)
        for point in data.data_points:
            require(types[name] == "gauge" or 0 < point.start_time_unix_nano < point.time_unix_nano, point)
            if types[name] == "histogram":
                require(sum(point.bucket_counts) == point.count, point)
                require(len(point.bucket_counts) == len(point.explicit_bounds) + 1, point)
    require(metrics["perseus_server_planning_duration_seconds"][0][0].unit == "s")
    totals = [sum(point.as_double for point in metric.sum.data_points)
              for metric, _ in metrics["perseus_server_requests_total"]]
    require(totals == sorted(totals) and totals[-1] > 0, totals)
