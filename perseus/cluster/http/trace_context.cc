#include "perseus/cluster/http/trace_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "perseus/base/random_id.h"

namespace perseus::http {
namespace {

bool IsLowerHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

std::optional<std::string> ParseTraceParent(std::string_view text) {
  // version-trace-parent-flags: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
  constexpr std::size_t kLength = 55;
  if (text.size() < kLength) return std::nullopt;
  const std::string_view version = text.substr(0, 2);
  const std::string_view trace = text.substr(3, 32);
  const std::string_view parent = text.substr(36, 16);
  const std::string_view flags = text.substr(53, 2);
  for (const std::size_t dash : {2u, 35u, 52u}) {
    if (text[dash] != '-') return std::nullopt;
  }
  for (const std::string_view part : {version, trace, parent, flags}) {
    if (!IsLowerHex(part)) return std::nullopt;
  }
  if (version == "ff" || IsZero(trace) || IsZero(parent)) return std::nullopt;
  // Later versions of the format may be longer.
  if (text.size() > kLength && (version == "00" || text[kLength] != '-')) {
    return std::nullopt;
  }
  return std::string(trace);
}

void AddTrace(Response& response, std::string_view trace) {
  constexpr std::size_t kSpanBytes = 8;
  response.fields.emplace_back("traceresponse",
                               fmt::format("00-{}-{}-00", trace, RandomHex(kSpanBytes)));
  if (response.status < 500 || response.content_type != kProblemType) return;
  auto document = nlohmann::ordered_json::parse(response.body);
  document["trace"] = trace;
  response.body = document.dump() + "\n";
}

}  // namespace perseus::http
