// The field numbers of OTLP's protobuf messages (opentelemetry-proto 1.x), those that are in use.
// tests/otlp reads real exports with OpenTelemetry's own definitions.
#pragma once

#include <protozero/types.hpp>

namespace perseus::otlp {

using Tag = protozero::pbf_tag_type;

// ExportTraceServiceRequest and ExportMetricsServiceRequest have the same form: a list of
// resources, each with a list of scopes, each with a list of spans or metrics.
enum class RequestField : Tag { kResources = 1 };
enum class OfResourceField : Tag { kResource = 1, kScopes = 2 };
enum class OfScopeField : Tag { kScope = 1, kItems = 2 };

enum class ResourceField : Tag { kAttributes = 1 };
enum class ScopeField : Tag { kName = 1 };
enum class KeyValueField : Tag { kKey = 1, kValue = 2 };
enum class AnyValueField : Tag { kText = 1, kWhole = 3, kReal = 4 };

enum class SpanField : Tag {
  kTrace = 1,
  kSpan = 2,
  kParent = 4,
  kName = 5,
  kKind = 6,
  kBegin = 7,
  kEnd = 8,
  kAttributes = 9,
  kStatus = 15,
};
enum class SpanStatusField : Tag { kMessage = 2, kCode = 3 };

enum class MetricField : Tag {
  kName = 1,
  kDescription = 2,
  kUnit = 3,
  kGauge = 5,
  kSum = 7,
  kHistogram = 9,
};
// Gauge, Sum and Histogram. A gauge has points only.
enum class DataField : Tag { kPoints = 1, kTemporality = 2, kIsMonotonic = 3 };
enum class NumberField : Tag { kBegin = 2, kTime = 3, kReal = 4, kAttributes = 7 };
enum class HistogramField : Tag {
  kBegin = 2,
  kTime = 3,
  kCount = 4,
  kSum = 5,
  kBucketCounts = 6,
  kBounds = 7,
  kAttributes = 9,
};

// ExportTraceServiceResponse and ExportMetricsServiceResponse.
enum class AnswerField : Tag { kPartialSuccess = 1 };
enum class PartialSuccessField : Tag { kRejected = 1, kMessage = 2 };
// google.rpc.Status, which an answer other than 200 has.
enum class FailureField : Tag { kMessage = 2 };

}  // namespace perseus::otlp
