#include "perseus/cluster/otlp/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/host_port.h"
#include "perseus/base/number.h"
#include "perseus/cluster/http/target.h"

namespace perseus::otlp {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kPrefix = "OTEL_EXPORTER_OTLP_";

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}
  // Empty if it is not set: the specification treats both alike.
  std::string operator()(const std::string& name) const {
    const char* value = environment_(name.c_str());
    return value == nullptr ? "" : value;
  }

 private:
  const Environment& environment_;
};

// `name`: of the flag or variable, for messages.
Result<Endpoint> ParseUrl(const std::string& url, const std::string& name) {
  const auto wrong = [&](std::string_view why) {
    return Fail(
        "{}: {} is not a URL for OTLP: {} (expected http://host:4318 or "
        "https://host:4318/path)",
        name, Excerpt(url), why);
  };
  const bool is_tls = url.starts_with("https://");
  if (!is_tls && !url.starts_with("http://")) return wrong("it needs http:// or https://");
  const std::string_view rest = std::string_view(url).substr(url.find("//") + 2);
  if (rest.find('@') != std::string_view::npos) {
    // The URL may contain a password.
    return Fail("{}: the URL contains a user or an @ (give credentials in {}HEADERS)", name,
                kPrefix);
  }
  if (!IsPrintable(url) || rest.find_first_of("?# \\,") != std::string_view::npos) {
    return wrong("it has a query or a forbidden character");
  }
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string host(rest.substr(0, slash));
  const bool has_port = host.rfind(':') != std::string::npos && !host.ends_with(']');
  if (!has_port) host = fmt::format("{}:{}", host, is_tls ? 443 : 80);
  const auto at = ParseHostPort(host);
  if (!at || at->host.empty() || at->port == 0) return wrong("its host or port is wrong");
  return Endpoint{.origin = fmt::format("{}://{}", is_tls ? "https" : "http", host),
                  .path = std::string(rest.substr(slash))};
}

bool IsToken(std::string_view text) {
  static constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kOthers.find(c) != std::string_view::npos;
  });
}

std::string_view Trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

// Parses "name=value,name=value". Messages show no value, because it may be a secret.
Result<std::map<std::string, std::string>> ParsePairs(std::string_view text,
                                                      const std::string& variable) {
  std::map<std::string, std::string> pairs;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view pair = Trimmed(text.substr(0, text.find(',')));
    text.remove_prefix(std::min(
        text.size(), text.find(',') == std::string_view::npos ? text.size() : text.find(',') + 1));
    if (pair.empty()) continue;
    const std::size_t equals = pair.find('=');
    const std::string_view name = Trimmed(pair.substr(0, equals));
    if (equals == std::string_view::npos || name.empty()) {
      return Fail("{}: entry {} is not name=value (separate entries by commas)", variable, number);
    }
    const auto value = http::PercentDecoded(Trimmed(pair.substr(equals + 1)));
    if (!value) {
      return Fail("{}: the value of {} has a bad escape (write % as %25)", variable, Excerpt(name));
    }
    pairs[std::string(name)] = *value;
  }
  return pairs;
}

Result<http::Fields> ReadHeaders(const Variables& variables, const std::string& signal) {
  http::Fields fields;
  for (const std::string& variable :
       {fmt::format("{}HEADERS", kPrefix), fmt::format("{}{}_HEADERS", kPrefix, signal)}) {
    PERSEUS_ASSIGN_OR_RETURN(const auto pairs, ParsePairs(variables(variable), variable));
    for (const auto& [name, value] : pairs) {
      std::string lower = name;
      std::ranges::transform(lower, lower.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      });
      static constexpr std::string_view kOwn[] = {"content-length", "content-type", "host",
                                                  "transfer-encoding"};
      if (!IsToken(name) || !IsPrintable(value) || std::ranges::count(kOwn, lower) != 0) {
        return Fail("{}: {} cannot be a header (use another name, and a value of one line)",
                    variable, Excerpt(name));
      }
      fields[lower] = value;
    }
  }
  return fields;
}

Result<void> ReadNumber(const Variables& variables, const std::string& variable, std::int64_t least,
                        std::int64_t most, std::int64_t& number) {
  const std::string text = variables(variable);
  if (text.empty()) return {};
  const auto read = ParseNumber<std::int64_t>(text);
  if (!read || *read < least || *read > most) {
    return Fail("{}: {} is not a whole number from {} to {}", variable, Excerpt(text), least, most);
  }
  number = *read;
  return {};
}

Result<void> ReadNumbers(const Variables& variables, Settings& settings) {
  const auto read_time = [&](const std::string& variable, milliseconds& time) -> Result<void> {
    std::int64_t number = time.count();
    PERSEUS_RETURN_IF_ERROR(ReadNumber(variables, variable, 1, 3'600'000, number));
    time = milliseconds(number);
    return {};
  };
  PERSEUS_RETURN_IF_ERROR(read_time(fmt::format("{}TIMEOUT", kPrefix), settings.timeout));
  PERSEUS_RETURN_IF_ERROR(read_time("OTEL_METRIC_EXPORT_INTERVAL", settings.metrics_interval));
  PERSEUS_RETURN_IF_ERROR(read_time("OTEL_BSP_SCHEDULE_DELAY", settings.spans_interval));
  auto most = static_cast<std::int64_t>(settings.most_spans);
  PERSEUS_RETURN_IF_ERROR(ReadNumber(variables, "OTEL_BSP_MAX_QUEUE_SIZE", 1, 1'000'000, most));
  settings.most_spans = static_cast<std::size_t>(most);
  return {};
}

Result<void> CheckProtocol(const Variables& variables, Settings& settings) {
  for (const char* name : {"", "TRACES_", "METRICS_"}) {
    const std::string variable = fmt::format("{}{}PROTOCOL", kPrefix, name);
    const std::string protocol = variables(variable);
    if (protocol.empty() || protocol == "http/protobuf") continue;
    if (protocol != "http/json") {
      return Fail(
          "{}: {} is not supported (use http/protobuf, and the port of OTLP over HTTP, 4318)",
          variable, Excerpt(protocol));
    }
    settings.warnings.push_back(fmt::format(
        "{} is http/json; the server sends http/protobuf, which every collector accepts",
        variable));
  }
  return {};
}

// Whether OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER asks for OTLP.
Result<bool> IsWanted(const Variables& variables, const std::string& signal) {
  const std::string variable = fmt::format("OTEL_{}_EXPORTER", signal);
  const std::string exporter = variables(variable);
  if (exporter.empty() || exporter == "otlp") return true;
  // /metrics is always there.
  if (exporter == "none" || (signal == "METRICS" && exporter == "prometheus")) return false;
  return Fail("{}: {} is not supported (use otlp or none)", variable, Excerpt(exporter));
}

Result<std::optional<Endpoint>> ReadEndpoint(const std::string& url, const Variables& variables,
                                             const std::string& signal, const std::string& path) {
  PERSEUS_ASSIGN_OR_RETURN(const bool is_wanted, IsWanted(variables, signal));
  if (!is_wanted) return std::nullopt;
  const std::string variable = fmt::format("{}{}_ENDPOINT", kPrefix, signal);
  const std::string own = variables(variable);
  const std::string base = variables(fmt::format("{}ENDPOINT", kPrefix));
  if (url.empty() && own.empty() && base.empty()) return std::nullopt;
  Endpoint endpoint;
  if (url.empty() && !own.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(endpoint, ParseUrl(own, variable));
    if (endpoint.path.empty()) endpoint.path.push_back('/');
  } else {
    PERSEUS_ASSIGN_OR_RETURN(endpoint, url.empty()
                                           ? ParseUrl(base, fmt::format("{}ENDPOINT", kPrefix))
                                           : ParseUrl(url, "--otlp"));
    if (endpoint.path.ends_with('/')) endpoint.path.pop_back();
    endpoint.path += path;
  }
  PERSEUS_ASSIGN_OR_RETURN(endpoint.headers, ReadHeaders(variables, signal));
  return endpoint;
}

}  // namespace

Result<std::optional<Settings>> ReadSettings(const std::string& url,
                                             const Environment& environment) {
  const Variables variables(environment);
  if (url.empty() && variables("OTEL_SDK_DISABLED") == "true") return std::nullopt;
  Settings settings;
  PERSEUS_ASSIGN_OR_RETURN(settings.traces, ReadEndpoint(url, variables, "TRACES", "/v1/traces"));
  PERSEUS_ASSIGN_OR_RETURN(settings.metrics,
                           ReadEndpoint(url, variables, "METRICS", "/v1/metrics"));
  if (!settings.traces && !settings.metrics) return std::nullopt;
  PERSEUS_RETURN_IF_ERROR(CheckProtocol(variables, settings));
  PERSEUS_RETURN_IF_ERROR(ReadNumbers(variables, settings));
  settings.authority = variables(fmt::format("{}CERTIFICATE", kPrefix));
  settings.certificate = variables(fmt::format("{}CLIENT_CERTIFICATE", kPrefix));
  settings.key = variables(fmt::format("{}CLIENT_KEY", kPrefix));
  PERSEUS_ASSIGN_OR_RETURN(settings.resource, ParsePairs(variables("OTEL_RESOURCE_ATTRIBUTES"),
                                                         "OTEL_RESOURCE_ATTRIBUTES"));
  if (const std::string name = variables("OTEL_SERVICE_NAME"); !name.empty()) {
    settings.resource["service.name"] = name;
  }
  return settings;
}

}  // namespace perseus::otlp
