"""A receiver of OTLP over HTTP that reads requests strictly, with OpenTelemetry's own definitions."""
import gzip
import http.server
import threading

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MESSAGES = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}
PROTOBUF = "application/x-protobuf"


def parsed(path, body):
    message = MESSAGES[path]()
    message.ParseFromString(body)
    whole = len(message.SerializeToString())
    message.DiscardUnknownFields()
    if len(message.SerializeToString()) != whole:
        raise ValueError("it has fields that OTLP does not have")
    return message


def attributes(owner):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in owner.attributes}


def check_ids(span):
    for name, size in (("trace_id", 16), ("span_id", 8), ("parent_span_id", 8)):
        value = getattr(span, name)
        if not (any(value) and len(value) == size) and not (name == "parent_span_id" and not value):
            raise ValueError(f"{name} {value}")


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
                        if wrong or self.headers["content-type"] != PROTOBUF:
                            raise ValueError(f"headers: {wrong} {self.headers}")
                        if self.headers["content-encoding"] == "gzip":  # Of a collector.
                            body = gzip.decompress(body)
                        receiver.take(parsed(self.path, body))
                    except (ValueError, KeyError, DecodeError) as error:
                        receiver.faults.append(f"{self.path}: {error!r}")
                self.send_response(200)  # With an empty message: all was accepted.
                self.send_header("content-type", PROTOBUF)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *ignored):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, message):
        for resource in getattr(message, "resource_spans", []):
            for scope in resource.scope_spans:
                for span in scope.spans:
                    check_ids(span)
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
