// The form of the JSON. tests/otlp reads real exports with OpenTelemetry's own definitions.
#include "perseus/cluster/otlp/encoding.h"

#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace perseus::otlp {
namespace {

using nlohmann::json;

const Resource kResource{{"service.name", "s"}, {"deployment.environment.name", "test"}};

TEST(OtlpEncoding, SpansHaveHexadecimalIdsAndNodesTheirOwnResource) {
  const std::vector<Span> spans = {
      {.trace = std::string(32, 'a'),
       .span = std::string(16, 'b'),
       .parent = "",
       .name = "plan",
       .begin_ns = 1'700'000'000'000'000'001,
       .end_ns = 1'700'000'000'000'000'002,
       .attributes = {{"text", std::string("\xff")}, {"whole", std::int64_t{-3}}, {"real", 0.5}},
       .error = "why"},
      {.trace = std::string(32, 'a'),
       .span = std::string(16, 'c'),
       .parent = std::string(16, 'b'),
       .name = "apply",
       .kind = Span::Kind::kConsumer,
       .node = "n1"}};
  const json request = json::parse(EncodeSpans(spans, kResource));
  ASSERT_EQ(request["resourceSpans"].size(), 2U);
  const json& first = request["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(first["traceId"], std::string(32, 'a'));
  EXPECT_FALSE(first.contains("parentSpanId"));
  EXPECT_EQ(first["startTimeUnixNano"], "1700000000000000001");
  EXPECT_EQ(first["status"], (json{{"code", 2}, {"message", "why"}}));
  EXPECT_EQ(first["attributes"][0]["value"]["stringValue"], "\xef\xbf\xbd");
  EXPECT_EQ(first["attributes"][1]["value"]["intValue"], "-3");
  EXPECT_EQ(first["attributes"][2]["value"]["doubleValue"], 0.5);
  const json& node = request["resourceSpans"][1];
  EXPECT_EQ(node["scopeSpans"][0]["spans"][0]["parentSpanId"], std::string(16, 'b'));
  EXPECT_EQ(node["scopeSpans"][0]["spans"][0]["kind"], 5);
  std::map<std::string, std::string> resource;
  for (const json& attribute : node["resource"]["attributes"]) {
    resource[attribute["key"]] = attribute["value"]["stringValue"];
  }
  EXPECT_EQ(resource,
            (std::map<std::string, std::string>{{"service.name", "perseus-node"},
                                                {"host.name", "n1"},
                                                {"deployment.environment.name", "test"}}));
}

TEST(OtlpEncoding, MetricsKeepTheirNamesAndKinds) {
  prometheus::Registry registry;
  prometheus::BuildCounter()
      .Name("x_joules_total")
      .Register(registry)
      .Add({{"a", "b"}})
      .Increment(2.5);
  prometheus::BuildGauge().Name("y").Register(registry).Add({}).Set(
      std::numeric_limits<double>::infinity());
  auto& histogram = prometheus::BuildHistogram()
                        .Name("z_seconds")
                        .Help("How long.")
                        .Register(registry)
                        .Add({}, prometheus::Histogram::BucketBoundaries{1, 2});
  for (const double value : {0.5, 1.5, 1.6, 9.0}) histogram.Observe(value);
  const json request = json::parse(EncodeMetrics(registry.Collect(), kResource, 10, 20));
  std::map<std::string, json> metrics;
  for (const json& metric : request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]) {
    metrics[metric["name"]] = metric;
  }
  ASSERT_EQ(metrics.size(), 3U);
  const json& sum = metrics["x_joules_total"];
  EXPECT_EQ(sum["unit"], "J");
  EXPECT_EQ(sum["sum"]["isMonotonic"], true);
  EXPECT_EQ(sum["sum"]["aggregationTemporality"], 2);
  const json& point = sum["sum"]["dataPoints"][0];
  EXPECT_EQ(point["asDouble"], 2.5);
  EXPECT_EQ(point["startTimeUnixNano"], "10");
  EXPECT_EQ(point["timeUnixNano"], "20");
  EXPECT_EQ(point["attributes"][0], (json{{"key", "a"}, {"value", {{"stringValue", "b"}}}}));
  EXPECT_EQ(metrics["y"]["gauge"]["dataPoints"][0]["asDouble"], "Infinity");
  const json& times = metrics["z_seconds"]["histogram"]["dataPoints"][0];
  EXPECT_EQ(metrics["z_seconds"]["unit"], "s");
  EXPECT_EQ(times["bucketCounts"], (json{"1", "2", "1"}));
  EXPECT_EQ(times["explicitBounds"], (json{1.0, 2.0}));
  EXPECT_EQ(times["count"], "4");
  EXPECT_EQ(times["sum"], 12.6);
}

}  // namespace
}  // namespace perseus::otlp
