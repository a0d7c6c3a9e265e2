#include "perseus/cluster/otlp/encoding.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace perseus::otlp {
namespace {

using nlohmann::ordered_json;

constexpr int kCumulative = 2;  // AGGREGATION_TEMPORALITY_CUMULATIVE
constexpr int kErrorStatus = 2;
constexpr std::string_view kScope = "perseus";

// Protobuf's JSON mapping: 64-bit integers are texts.
template <typename Integer>
std::string Whole(Integer value) {
  return fmt::to_string(value);
}

ordered_json Real(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

ordered_json AttributeValue(const Span::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return {{"stringValue", *text}};
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return {{"intValue", Whole(*whole)}};
  return {{"doubleValue", Real(std::get<double>(value))}};
}

ordered_json Attribute(const std::string& key, const Span::Value& value) {
  return {{"key", key}, {"value", AttributeValue(value)}};
}

ordered_json ResourceJson(const Resource& resource) {
  auto attributes = ordered_json::array();
  for (const auto& [key, value] : resource) attributes.push_back(Attribute(key, value));
  return {{"attributes", std::move(attributes)}};
}

ordered_json ScopeJson() { return {{"name", kScope}}; }

ordered_json SpanJson(const Span& span) {
  ordered_json json{{"traceId", span.trace}, {"spanId", span.span}};
  if (!span.parent.empty()) json["parentSpanId"] = span.parent;
  json["name"] = span.name;
  json["kind"] = static_cast<int>(span.kind);
  json["startTimeUnixNano"] = Whole(span.begin_ns);
  json["endTimeUnixNano"] = Whole(span.end_ns);
  auto attributes = ordered_json::array();
  for (const auto& [key, value] : span.attributes) attributes.push_back(Attribute(key, value));
  json["attributes"] = std::move(attributes);
  if (!span.error.empty()) json["status"] = {{"code", kErrorStatus}, {"message", span.error}};
  return json;
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

// A request is one line of text, also if a label is not UTF-8.
std::string Dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
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

ordered_json PointOf(const prometheus::ClientMetric& metric, const Times& times) {
  auto attributes = ordered_json::array();
  for (const auto& label : metric.label) attributes.push_back(Attribute(label.name, label.value));
  return {{"attributes", std::move(attributes)},
          {"startTimeUnixNano", Whole(times.begin_ns)},
          {"timeUnixNano", Whole(times.now_ns)}};
}

void AddHistogram(const prometheus::ClientMetric& metric, ordered_json& point) {
  auto counts = ordered_json::array();
  auto bounds = ordered_json::array();
  std::uint64_t below = 0;
  for (const auto& bucket : metric.histogram.bucket) {
    const auto cumulative = static_cast<std::uint64_t>(bucket.cumulative_count);
    counts.push_back(Whole(cumulative - below));
    below = cumulative;
    // The last bucket has no bound.
    if (!std::isinf(bucket.upper_bound)) bounds.push_back(bucket.upper_bound);
  }
  point["count"] = Whole(static_cast<std::uint64_t>(metric.histogram.sample_count));
  point["sum"] = Real(metric.histogram.sample_sum);
  point["bucketCounts"] = std::move(counts);
  point["explicitBounds"] = std::move(bounds);
}

ordered_json MetricJson(const prometheus::MetricFamily& family, const Times& times) {
  ordered_json json{{"name", family.name}, {"description", family.help}};
  if (const auto unit = UnitOf(family.name); !unit.empty()) json["unit"] = unit;
  auto points = ordered_json::array();
  for (const prometheus::ClientMetric& metric : family.metric) {
    ordered_json point = PointOf(metric, times);
    if (family.type == prometheus::MetricType::Histogram) {
      AddHistogram(metric, point);
    } else if (family.type == prometheus::MetricType::Counter) {
      point["asDouble"] = Real(metric.counter.value);
    } else {
      point.erase("startTimeUnixNano");
      point["asDouble"] = Real(metric.gauge.value);
    }
    points.push_back(std::move(point));
  }
  if (family.type == prometheus::MetricType::Histogram) {
    json["histogram"] = {{"dataPoints", std::move(points)},
                         {"aggregationTemporality", kCumulative}};
  } else if (family.type == prometheus::MetricType::Counter) {
    json["sum"] = {{"dataPoints", std::move(points)},
                   {"aggregationTemporality", kCumulative},
                   {"isMonotonic", true}};
  } else {
    json["gauge"] = {{"dataPoints", std::move(points)}};
  }
  return json;
}

}  // namespace

std::string EncodeSpans(std::span<const Span> spans, const Resource& resource) {
  std::map<std::string, ordered_json> by_node;
  for (const Span& span : spans) {
    by_node.try_emplace(span.node, ordered_json::array()).first->second.push_back(SpanJson(span));
  }
  auto list = ordered_json::array();
  for (auto& [node, its_spans] : by_node) {
    list.push_back({{"resource", ResourceJson(ResourceOf(node, resource))},
                    {"scopeSpans", ordered_json::array({{{"scope", ScopeJson()},
                                                         {"spans", std::move(its_spans)}}})}});
  }
  return Dump({{"resourceSpans", std::move(list)}});
}

std::string EncodeMetrics(std::span<const prometheus::MetricFamily> families,
                          const Resource& resource, std::int64_t begin_ns, std::int64_t now_ns) {
  auto metrics = ordered_json::array();
  for (const prometheus::MetricFamily& family : families) {
    const bool is_known = family.type == prometheus::MetricType::Counter ||
                          family.type == prometheus::MetricType::Gauge ||
                          family.type == prometheus::MetricType::Histogram;
    if (is_known && !family.metric.empty()) {
      metrics.push_back(MetricJson(family, {.begin_ns = begin_ns, .now_ns = now_ns}));
    }
  }
  const ordered_json scope{{"scope", ScopeJson()}, {"metrics", std::move(metrics)}};
  return Dump({{"resourceMetrics",
                ordered_json::array({{{"resource", ResourceJson(resource)},
                                      {"scopeMetrics", ordered_json::array({scope})}}})}});
}

}  // namespace perseus::otlp
