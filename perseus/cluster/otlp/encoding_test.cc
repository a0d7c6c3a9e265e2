// The form of the messages, by the numbers of their fields. tests/otlp reads real exports with
// OpenTelemetry's own definitions, and sends them through a collector.
#include "perseus/cluster/otlp/encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstring>
#include <limits>
#include <map>

#include "perseus/cluster/otlp/raw_fields.h"

namespace perseus::otlp {
namespace {

const Resource kResource{{"service.name", "s"}, {"deployment.environment.name", "test"}};

// The only field at the path.
RawField At(const std::string& message, const std::vector<protozero::pbf_tag_type>& path) {
  const auto fields = FieldsAt(message, path);
  EXPECT_EQ(fields.size(), 1U);
  return fields.empty() ? RawField() : fields.front();
}

template <typename Number>
std::vector<Number> Unpacked(const std::string& bytes) {
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
  return numbers;
}

// The attributes in field `number` of a message: key -> AnyValue.
std::map<std::string, std::string> Attributes(const std::string& message,
                                              protozero::pbf_tag_type number) {
  std::map<std::string, std::string> attributes;
  for (const RawField& pair : FieldsAt(message, {number})) {
    attributes[At(pair.bytes, {1}).bytes] = At(pair.bytes, {2}).bytes;
  }
  return attributes;
}

TEST(OtlpEncoding, SpansHaveBytesAsIdsAndNodesTheirOwnResource) {
  const std::vector<Span> spans = {{.trace = "0123456789abcdef0123456789abcdef",
                                    .span = std::string(16, 'b'),
                                    .parent = "",
                                    .name = "plan",
                                    .begin_ns = 1'700'000'000'000'000'001,
                                    .end_ns = 1'700'000'000'000'000'002,
                                    .attributes = {{"text",
                                                    "a\xff"
                                                    "b"},
                                                   {"whole", std::int64_t{-3}},
                                                   {"real", 0.5}},
                                    .error = "why"},
                                   {.trace = std::string(32, 'a'),
                                    .span = std::string(16, 'c'),
                                    .parent = std::string(16, 'b'),
                                    .name = "apply",
                                    .kind = Span::Kind::kConsumer,
                                    .node = "n1"}};
  const std::string request = EncodeSpans(spans, kResource);
  const auto resources = FieldsAt(request, {1});
  ASSERT_EQ(resources.size(), 2U);
  EXPECT_EQ(At(resources[0].bytes, {2, 1, 1}).bytes, "perseus");
  const std::string first = At(resources[0].bytes, {2, 2}).bytes;
  EXPECT_EQ(At(first, {1}).bytes,
            "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef");
  EXPECT_EQ(At(first, {2}).bytes, std::string(8, '\xbb'));
  EXPECT_TRUE(FieldsAt(first, {4}).empty()) << "it has no parent";
  EXPECT_EQ(At(first, {5}).bytes, "plan");
  EXPECT_EQ(At(first, {7}).fixed, 1'700'000'000'000'000'001U);
  EXPECT_EQ(At(first, {8}).fixed, 1'700'000'000'000'000'002U);
  EXPECT_EQ(At(first, {15, 2}).bytes, "why");
  EXPECT_EQ(At(first, {15, 3}).number, 2U);
  const auto attributes = Attributes(first, 9);
  EXPECT_EQ(At(attributes.at("text"), {1}).bytes,
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(static_cast<std::int64_t>(At(attributes.at("whole"), {3}).number), -3);
  EXPECT_EQ(At(attributes.at("real"), {4}).real, 0.5);
  const std::string node = At(resources[1].bytes, {2, 2}).bytes;
  EXPECT_EQ(At(node, {4}).bytes, std::string(8, '\xbb'));
  EXPECT_EQ(At(node, {6}).number, 5U);
  std::map<std::string, std::string> resource;
  for (const auto& [key, value] : Attributes(At(resources[1].bytes, {1}).bytes, 1)) {
    resource[key] = At(value, {1}).bytes;
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
  const std::string request = EncodeMetrics(registry.Collect(), kResource, 10, 20);
  std::map<std::string, std::string> metrics;
  for (const RawField& metric : FieldsAt(request, {1, 2, 2})) {
    metrics[At(metric.bytes, {1}).bytes] = metric.bytes;
  }
  ASSERT_EQ(metrics.size(), 3U);
  const std::string& sum = metrics["x_joules_total"];
  EXPECT_EQ(At(sum, {3}).bytes, "J");
  EXPECT_EQ(At(sum, {7, 3}).number, 1U) << "it is monotonic";
  EXPECT_EQ(At(sum, {7, 2}).number, 2U) << "it is cumulative";
  EXPECT_EQ(At(sum, {7, 1, 4}).real, 2.5);
  EXPECT_EQ(At(sum, {7, 1, 2}).fixed, 10U);
  EXPECT_EQ(At(sum, {7, 1, 3}).fixed, 20U);
  const auto labels = Attributes(At(sum, {7, 1}).bytes, 7);
  ASSERT_EQ(labels.size(), 1U);
  EXPECT_EQ(At(labels.at("a"), {1}).bytes, "b");
  const std::string& gauge = metrics["y"];
  EXPECT_EQ(At(gauge, {5, 1, 4}).real, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(FieldsAt(gauge, {5, 1, 2}).empty()) << "a gauge has no begin";
  const std::string& times = metrics["z_seconds"];
  EXPECT_EQ(At(times, {2}).bytes, "How long.");
  EXPECT_EQ(At(times, {3}).bytes, "s");
  EXPECT_EQ(At(times, {9, 2}).number, 2U);
  EXPECT_EQ(At(times, {9, 1, 4}).fixed, 4U);
  EXPECT_EQ(At(times, {9, 1, 5}).real, 12.6);
  EXPECT_THAT(Unpacked<std::uint64_t>(At(times, {9, 1, 6}).bytes), testing::ElementsAre(1, 2, 1));
  EXPECT_THAT(Unpacked<double>(At(times, {9, 1, 7}).bytes), testing::ElementsAre(1.0, 2.0));
}

}  // namespace
}  // namespace perseus::otlp
