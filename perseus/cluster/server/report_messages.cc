#include "perseus/cluster/server/report_messages.h"

#include <algorithm>
#include <span>

namespace perseus::server {
namespace {

using json_file::Node;
using nlohmann::ordered_json;

// Of one text: each takes 200 bytes at most, and names 400.
constexpr std::size_t kStepsInAText = 30;

}  // namespace

Answer<std::vector<protocol::JobReport>> ReadReports(std::string_view body) {
  return ReadBody(body, protocol::kDeepestReports, protocol::ReadReports);
}

std::vector<std::string> FormatHeard(const HeardOfJob& heard) {
  ordered_json json{{"replica", heard.replica}, {"job", heard.job}, {"node", heard.node}};
  if (heard.begins_anew) json["begins_anew"] = true;
  if (heard.forgotten) json["forgotten"] = *heard.forgotten;
  if (heard.steps.empty()) return {json.dump()};
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < heard.steps.size(); begin += kStepsInAText) {
    const std::size_t end = std::min(begin + kStepsInAText, heard.steps.size());
    json["steps"] = protocol::StepsJson(std::span(heard.steps).subspan(begin, end - begin));
    texts.push_back(json.dump());
  }
  return texts;
}

Result<HeardOfJob> ParseHeard(std::string_view text) {
  return json_file::Read(
      text, "another replica's message", protocol::kDeepestReports, [](const Node& node) {
        HeardOfJob heard;
        heard.replica = node.Member("replica").Text();
        heard.job = node.Member("job").Text();
        heard.node = node.Member("node").Text();
        heard.begins_anew = node.Has("begins_anew") && node.Member("begins_anew").Flag();
        if (node.Has("forgotten")) {
          heard.forgotten = node.Member("forgotten").Count(0, 999'999, "a dp_rank, from 0");
        }
        if (node.Has("steps")) heard.steps = protocol::ReadSteps(node.Member("steps"));
        return heard;
      });
}

}  // namespace perseus::server
