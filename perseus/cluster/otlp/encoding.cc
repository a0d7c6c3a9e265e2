#include "perseus/cluster/otlp/encoding.h"

#include <charconv>
#include <cmath>
#include <map>
#include <protozero/pbf_builder.hpp>
#include <string_view>
#include <utility>

#include "perseus/base/utf8.h"
#include "perseus/cluster/otlp/fields.h"

namespace perseus::otlp {
namespace {

using protozero::pbf_builder;

constexpr int kCumulative = 2;  // AGGREGATION_TEMPORALITY_CUMULATIVE
constexpr int kErrorStatus = 2;

// Readers refuse a whole request if one text of it is not UTF-8.
std::string Utf8(std::string_view text) {
  std::string valid;
  for (std::size_t bad = 0; (bad = FindInvalidUtf8(text)) != std::string_view::npos;) {
    valid.append(text.substr(0, bad)).append("\xef\xbf\xbd");
    text.remove_prefix(bad + 1);
  }
  return valid.append(text);
}

// The bytes of an id of hexadecimal digits.
std::string Bytes(std::string_view digits) {
  std::string bytes;
  for (; digits.size() >= 2; digits.remove_prefix(2)) {
    unsigned char byte = 0;
    std::from_chars(digits.data(), digits.data() + 2, byte, 16);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

// `Field::kAttributes` of every message that has attributes.
template <typename Field>
void AddAttribute(pbf_builder<Field>& owner, const std::string& key, const Span::Value& value) {
  pbf_builder<KeyValueField> pair(owner, Field::kAttributes);
  pair.add_string(KeyValueField::kKey, Utf8(key));
  pbf_builder<AnyValueField> any(pair, KeyValueField::kValue);
  if (const auto* text = std::get_if<std::string>(&value)) {
    any.add_string(AnyValueField::kText, Utf8(*text));
  } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    any.add_int64(AnyValueField::kWhole, *whole);
  } else {
    any.add_double(AnyValueField::kReal, std::get<double>(value));
  }
}

template <typename Field>
void AddTime(pbf_builder<Field>& owner, Field field, std::int64_t since_1970_ns) {
  owner.add_fixed64(field, static_cast<std::uint64_t>(since_1970_ns));
}

void AddSpan(pbf_builder<OfScopeField>& scope, const Span& span) {
  pbf_builder<SpanField> message(scope, OfScopeField::kItems);
  message.add_bytes(SpanField::kTrace, Bytes(span.trace));
  message.add_bytes(SpanField::kSpan, Bytes(span.span));
  if (!span.parent.empty()) message.add_bytes(SpanField::kParent, Bytes(span.parent));
  message.add_string(SpanField::kName, Utf8(span.name));
  message.add_enum(SpanField::kKind, static_cast<int>(span.kind));
  AddTime(message, SpanField::kBegin, span.begin_ns);
  AddTime(message, SpanField::kEnd, span.end_ns);
  for (const auto& [key, value] : span.attributes) AddAttribute(message, key, value);
  if (!span.error.empty()) {
    pbf_builder<SpanStatusField> status(message, SpanField::kStatus);
    status.add_string(SpanStatusField::kMessage, Utf8(span.error));
    status.add_enum(SpanStatusField::kCode, kErrorStatus);
  }
}

// Adds what a resource emitted: `add_items` adds the spans or metrics.
template <typename AddItems>
void AddResource(pbf_builder<RequestField>& request, const Resource& resource, AddItems add_items) {
  pbf_builder<OfResourceField> of_resource(request, RequestField::kResources);
  {
    pbf_builder<ResourceField> message(of_resource, OfResourceField::kResource);
    for (const auto& [key, value] : resource) AddAttribute(message, key, value);
  }
  pbf_builder<OfScopeField> of_scope(of_resource, OfResourceField::kScopes);
  pbf_builder<ScopeField>(of_scope, OfScopeField::kScope).add_string(ScopeField::kName, "perseus");
  add_items(of_scope);
}

Resource ResourceOf(const std::string& node, const Resource& process) {
  if (node.empty()) return process;
  Resource resource{{"service.name", "perseus-node"}, {"host.name", node}};
  // Attributes of the environment, such as deployment.environment.name, hold for nodes, too.
  for (const auto& [key, value] : process) {
    if (!key.starts_with("service.") && !key.starts_with("host.")) resource.emplace(key, value);
  }
  return resource;
}

// The unit (UCUM) that the name of the metric ends with, as OpenMetrics requires.
std::string_view UnitOf(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kUnits[] = {
      {"_seconds", "s"}, {"_joules", "J"}, {"_bytes", "By"}, {"_watts", "W"}, {"_celsius", "Cel"}};
  if (name.ends_with("_total")) name.remove_suffix(std::string_view("_total").size());
  for (const auto& [suffix, unit] : kUnits) {
    if (name.ends_with(suffix)) return unit;
  }
  return "";
}

struct Times {
  std::int64_t begin_ns;
  std::int64_t now_ns;
};

template <typename Field>
void AddLabels(pbf_builder<Field>& point, const prometheus::ClientMetric& metric) {
  for (const auto& label : metric.label) AddAttribute(point, label.name, label.value);
}

void AddHistogram(pbf_builder<DataField>& data, const prometheus::ClientMetric& metric,
                  const Times& times) {
  std::vector<std::uint64_t> counts;
  std::vector<double> bounds;
  std::uint64_t below = 0;
  for (const auto& bucket : metric.histogram.bucket) {
    const auto cumulative = static_cast<std::uint64_t>(bucket.cumulative_count);
    counts.push_back(cumulative - below);
    below = cumulative;
    // The last bucket has no bound.
    if (!std::isinf(bucket.upper_bound)) bounds.push_back(bucket.upper_bound);
  }
  pbf_builder<HistogramField> point(data, DataField::kPoints);
  AddTime(point, HistogramField::kBegin, times.begin_ns);
  AddTime(point, HistogramField::kTime, times.now_ns);
  point.add_fixed64(HistogramField::kCount,
                    static_cast<std::uint64_t>(metric.histogram.sample_count));
  point.add_double(HistogramField::kSum, metric.histogram.sample_sum);
  point.add_packed_fixed64(HistogramField::kBucketCounts, counts.begin(), counts.end());
  point.add_packed_double(HistogramField::kBounds, bounds.begin(), bounds.end());
  AddLabels(point, metric);
}

void AddMetric(pbf_builder<OfScopeField>& scope, const prometheus::MetricFamily& family,
               const Times& times) {
  const bool is_histogram = family.type == prometheus::MetricType::Histogram;
  const bool is_sum = family.type == prometheus::MetricType::Counter;
  pbf_builder<MetricField> message(scope, OfScopeField::kItems);
  message.add_string(MetricField::kName, Utf8(family.name));
  message.add_string(MetricField::kDescription, Utf8(family.help));
  if (const auto unit = UnitOf(family.name); !unit.empty()) {
    message.add_string(MetricField::kUnit, std::string(unit));
  }
  pbf_builder<DataField> data(message, is_histogram ? MetricField::kHistogram
                                       : is_sum     ? MetricField::kSum
                                                    : MetricField::kGauge);
  for (const prometheus::ClientMetric& metric : family.metric) {
    if (is_histogram) {
      AddHistogram(data, metric, times);
      continue;
    }
    pbf_builder<NumberField> point(data, DataField::kPoints);
    if (is_sum) AddTime(point, NumberField::kBegin, times.begin_ns);
    AddTime(point, NumberField::kTime, times.now_ns);
    point.add_double(NumberField::kReal, is_sum ? metric.counter.value : metric.gauge.value);
    AddLabels(point, metric);
  }
  if (is_histogram || is_sum) data.add_enum(DataField::kTemporality, kCumulative);
  if (is_sum) data.add_bool(DataField::kIsMonotonic, true);
}

}  // namespace

std::string EncodeSpans(std::span<const Span> spans, const Resource& resource) {
  std::map<std::string_view, std::vector<const Span*>> by_node;
  for (const Span& span : spans) by_node[span.node].push_back(&span);
  std::string bytes;
  pbf_builder<RequestField> request(bytes);
  for (const auto& [node, spans_of_node] : by_node) {
    AddResource(request, ResourceOf(std::string(node), resource),
                [&spans_of_node = spans_of_node](auto& scope) {
                  for (const Span* span : spans_of_node) AddSpan(scope, *span);
                });
  }
  return bytes;
}

std::string EncodeMetrics(std::span<const prometheus::MetricFamily> families,
                          const Resource& resource, std::int64_t begin_ns, std::int64_t now_ns) {
  std::string bytes;
  pbf_builder<RequestField> request(bytes);
  AddResource(request, resource, [&](auto& scope) {
    for (const prometheus::MetricFamily& family : families) {
      const bool is_known = family.type == prometheus::MetricType::Counter ||
                            family.type == prometheus::MetricType::Gauge ||
                            family.type == prometheus::MetricType::Histogram;
      if (is_known && !family.metric.empty()) {
        AddMetric(scope, family, {.begin_ns = begin_ns, .now_ns = now_ns});
      }
    }
  });
  return bytes;
}

}  // namespace perseus::otlp
