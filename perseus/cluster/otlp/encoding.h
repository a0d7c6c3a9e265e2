// Spans and metrics as OTLP requests: the protobuf messages ExportTraceServiceRequest and
// ExportMetricsServiceRequest (OTLP 1.x).
//
// Protobuf, and not OTLP's JSON: every collector has to read protobuf, and not all read JSON.
// VictoriaMetrics 1.112 refuses it. rotel 0.0.1a15 accepts it and loses histograms, whose 64-bit
// numbers are texts in JSON.
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perseus/cluster/otlp/settings.h"
#include "perseus/cluster/otlp/span.h"

namespace perseus::otlp {

// The spans of a node have a resource of their own: service.name "perseus-node", and the name of
// the node as host.name. Bytes that are not UTF-8 become U+FFFD.
std::string EncodeSpans(std::span<const Span> spans, const Resource& resource);

// Counters are cumulative, monotonic sums, and histograms are cumulative, both since `begin_ns`
// (since 1970). Names and labels stay as /metrics shows them. The unit is that of the name.
std::string EncodeMetrics(std::span<const prometheus::MetricFamily> families,
                          const Resource& resource, std::int64_t begin_ns, std::int64_t now_ns);

}  // namespace perseus::otlp
