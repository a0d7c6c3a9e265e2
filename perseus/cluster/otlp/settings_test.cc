#include "perseus/cluster/otlp/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace perseus::otlp {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<Settings>> Read(const std::string& url, const Variables& variables) {
  return ReadSettings(url, [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string UrlOf(const std::optional<Endpoint>& endpoint) {
  return endpoint ? endpoint->origin + endpoint->path : "none";
}

TEST(OtlpSettings, WithoutAnEndpointNothingIsExported) {
  for (const Variables& variables : std::vector<Variables>{
           {},
           {{"OTEL_EXPORTER_OTLP_ENDPOINT", ""}},
           {{"OTEL_SERVICE_NAME", "x"}},
           {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1"}, {"OTEL_SDK_DISABLED", "true"}},
           {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1"},
            {"OTEL_TRACES_EXPORTER", "none"},
            {"OTEL_METRICS_EXPORTER", "prometheus"}}}) {
    const auto settings = Read("", variables);
    ASSERT_TRUE(settings) << settings.error().message;
    EXPECT_FALSE(*settings);
  }
}

TEST(OtlpSettings, PathsOfSignalsFollowABaseUrl) {
  struct Row {
    const char* url;
    const char* traces;
  };
  for (const Row& row : {Row{"http://c:4318", "http://c:4318/v1/traces"},
                         Row{"http://c:4318/", "http://c:4318/v1/traces"},
                         Row{"https://c/otlp", "https://c:443/otlp/v1/traces"},
                         Row{"http://c/otlp/", "http://c:80/otlp/v1/traces"},
                         Row{"http://[::1]:4318", "http://[::1]:4318/v1/traces"}}) {
    const auto settings = Read(row.url, {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://other:1"}});
    ASSERT_TRUE(settings && *settings) << row.url;
    EXPECT_EQ(UrlOf((*settings)->traces), row.traces);
  }
}

TEST(OtlpSettings, TheUrlOfASignalIsWhole) {
  const auto settings = Read("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:4318"},
                                  {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces:1/ingest"},
                                  {"OTEL_EXPORTER_OTLP_HEADERS", "Api-Key=a%2Cb , x-team = t1"},
                                  {"OTEL_EXPORTER_OTLP_METRICS_HEADERS", "api-key=metrics"}});
  ASSERT_TRUE(settings && *settings);
  EXPECT_EQ(UrlOf((*settings)->traces), "https://traces:1/ingest");
  EXPECT_EQ(UrlOf((*settings)->metrics), "http://base:4318/v1/metrics");
  EXPECT_EQ((*settings)->traces->headers, (http::Fields{{"api-key", "a,b"}, {"x-team", "t1"}}));
  EXPECT_EQ((*settings)->metrics->headers.at("api-key"), "metrics");
}

TEST(OtlpSettings, AreThoseOfOpenTelemetry) {
  const auto settings =
      Read("http://c:4318", {{"OTEL_SERVICE_NAME", "planner"},
                             {"OTEL_RESOURCE_ATTRIBUTES", "service.name=other,team=a%20b"},
                             {"OTEL_METRIC_EXPORT_INTERVAL", "1500"},
                             {"OTEL_EXPORTER_OTLP_TIMEOUT", "200"},
                             {"OTEL_BSP_MAX_QUEUE_SIZE", "7"},
                             {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"},
                             {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"},
                             {"OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem"}});
  ASSERT_TRUE(settings && *settings);
  const Settings& read = **settings;
  EXPECT_EQ(read.resource, (Resource{{"service.name", "planner"}, {"team", "a b"}}));
  EXPECT_EQ(read.metrics_interval, std::chrono::milliseconds(1500));
  EXPECT_EQ(read.timeout, std::chrono::milliseconds(200));
  EXPECT_EQ(read.most_spans, 7U);
  EXPECT_EQ(read.authority, "ca.pem");
  EXPECT_THAT(read.warnings,
              testing::ElementsAre(testing::HasSubstr("TRACES_PROTOCOL is http/json")));
}

TEST(OtlpSettings, AMistakeIsNamedAndNoSecretIsShown) {
  struct Row {
    std::string url;
    Variables variables;
    const char* message;
  };
  const std::string good = "http://c:4318";
  for (const Row& row : std::vector<Row>{
           {"c:4318", {}, "--otlp: \"c:4318\" is not a URL"},
           {"grpc://c:4317", {}, "it needs http:// or https://"},
           {"http://", {}, "its host or port is wrong"},
           {"http://c:99999", {}, "its host or port is wrong"},
           {"http://c:4318/x?key=1", {}, "it has a query"},
           {"http://c:4318/x\ny", {}, "forbidden character"},
           {"http://me:secret@c:4318", {}, "OTEL_EXPORTER_OTLP_HEADERS"},
           {"", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "c"}}, "OTEL_EXPORTER_OTLP_ENDPOINT: \"c\""},
           {good, {{"OTEL_EXPORTER_OTLP_HEADERS", "secret"}}, "entry 1 is not name=value"},
           {good, {{"OTEL_EXPORTER_OTLP_HEADERS", "a=secret%zz"}}, "\"a\" has a bad escape"},
           {good, {{"OTEL_EXPORTER_OTLP_HEADERS", "a=secret%0d%0ab: c"}}, "cannot be a header"},
           {good, {{"OTEL_EXPORTER_OTLP_HEADERS", "a b=secret"}}, "cannot be a header"},
           {good, {{"OTEL_EXPORTER_OTLP_HEADERS", "Host=secret"}}, "cannot be a header"},
           {good, {{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}}, "4318"},
           {good, {{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s"}}, "OTEL_EXPORTER_OTLP_TIMEOUT: \"10s\""},
           {good, {{"OTEL_METRIC_EXPORT_INTERVAL", "0"}}, "from 1 to 3600000"},
           {good, {{"OTEL_TRACES_EXPORTER", "jaeger"}}, "use otlp or none"},
           {good, {{"OTEL_RESOURCE_ATTRIBUTES", "a"}}, "OTEL_RESOURCE_ATTRIBUTES"}}) {
    const auto settings = Read(row.url, row.variables);
    ASSERT_FALSE(settings) << row.message;
    EXPECT_THAT(settings.error().message, testing::HasSubstr(row.message));
    EXPECT_THAT(settings.error().message, testing::Not(testing::HasSubstr("secret")));
    EXPECT_EQ(settings.error().kind, ErrorKind::kInput);
  }
}

}  // namespace
}  // namespace perseus::otlp
