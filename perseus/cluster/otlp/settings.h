// Where traces and metrics go: the settings of OpenTelemetry's environment variables.
//
// | variable | meaning here |
// |---|---|
// | OTEL_EXPORTER_OTLP_ENDPOINT | base URL; /v1/traces and /v1/metrics are added |
// | OTEL_EXPORTER_OTLP_{TRACES,METRICS}_ENDPOINT | whole URL of one signal |
// | OTEL_EXPORTER_OTLP_HEADERS, …_{TRACES,METRICS}_HEADERS | "name=value,…", percent-encoded |
// | OTEL_EXPORTER_OTLP_TIMEOUT | of a request, in ms |
// | OTEL_EXPORTER_OTLP_CERTIFICATE | PEM file of the authority to trust |
// | OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE, …_CLIENT_KEY | PEM files |
// | OTEL_EXPORTER_OTLP_PROTOCOL | http/protobuf; grpc is refused, http/json warns |
// | OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES | attributes of the resource |
// | OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER | none, or otlp |
// | OTEL_METRIC_EXPORT_INTERVAL, OTEL_BSP_SCHEDULE_DELAY | in ms |
// | OTEL_BSP_MAX_QUEUE_SIZE | spans that wait |
// | OTEL_SDK_DISABLED | true: nothing is exported |
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/http/message.h"

namespace perseus::otlp {

struct Endpoint {
  std::string origin;  // "https://collector:4318"
  std::string path;    // "/v1/traces"
  http::Fields headers = {};
};

using Resource = std::map<std::string, std::string>;

struct Settings {
  std::optional<Endpoint> traces = {};
  std::optional<Endpoint> metrics = {};
  std::string authority = {};
  std::string certificate = {};
  std::string key = {};
  Resource resource = {};
  std::chrono::milliseconds timeout{10'000};
  std::chrono::milliseconds metrics_interval{60'000};
  std::chrono::milliseconds spans_interval{5'000};
  std::size_t most_spans = 16'384;
  std::vector<std::string> warnings = {};  // For the log.
};

// `url`: the base URL, in place of all variables for endpoints. Empty: the variables. Returns
// nothing if no endpoint is set. Fails (kInput) with the name of the wrong variable. No message
// contains the value of a header.
using Environment = std::function<const char*(const char* name)>;
Result<std::optional<Settings>> ReadSettings(const std::string& url,
                                             const Environment& environment);

}  // namespace perseus::otlp
