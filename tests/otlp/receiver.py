"""A receiver of OTLP over HTTP that reads requests strictly, with OpenTelemetry's own definitions."""
import base64
import http.server
import json
import threading

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MESSAGES = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}
ID_BYTES = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def with_base64_ids(value):
    """OTLP has hexadecimal ids where protobuf's JSON mapping has base64."""
    if isinstance(value, list):
        return [with_base64_ids(member) for member in value]
    if not isinstance(value, dict):
        return value
    changed = {}
    for key, member in value.items():
        if key in ID_BYTES:
            raw = bytes.fromhex(member)
            if len(raw) != ID_BYTES[key] or not any(raw) or member != member.lower():
                raise ValueError(f"{key} {member}")
            member = base64.b64encode(raw).decode()
        changed[key] = with_base64_ids(member)
    return changed


def attributes(owner):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in owner.attributes}


class Receiver:
    def __init__(self, headers):
        self.lock = threading.Lock()
        self.faults, self.spans, self.metrics = [], {}, {}
        self.is_busy, self.refused = False, 0  # Whether it answers 503, and how often it did.
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                with receiver.lock:
                    if receiver.is_busy:
                        receiver.refused += 1
                        self.send_response(503)
                        self.send_header("content-length", "0")
                        self.end_headers()
                        return
                    try:
                        wrong = [name for name, value in headers.items() if self.headers[name] != value]
                        if wrong or self.headers["content-type"] != "application/json":
                            raise ValueError(f"headers: {wrong} {self.headers}")
                        message = MESSAGES[self.path]()
                        json_format.ParseDict(with_base64_ids(json.loads(body)), message)
                        receiver.take(message)
                    except (ValueError, KeyError, json_format.ParseError) as error:
                        receiver.faults.append(f"{self.path}: {error!r}")
                answer = b"{}"
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *ignored):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, message):
        for resource in getattr(message, "resource_spans", []):
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans[span.span_id.hex()] = (span, attributes(resource.resource))
        for resource in getattr(message, "resource_metrics", []):
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self.metrics.setdefault(metric.name, []).append(
                        (metric, attributes(resource.resource)))

    def spans_of(self, trace):
        with self.lock:
            return [pair for pair in self.spans.values() if pair[0].trace_id.hex() == trace]

    def end(self):
        self.server.shutdown()
        self.server.server_close()
