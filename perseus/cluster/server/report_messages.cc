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

std::vector<std::string> FormatReplicaMessage(const ReplicaMessage& message) {
  ordered_json json{{"replica", message.replica}, {"job", message.job}, {"node", message.node}};
  if (message.restarted) json["restarted"] = true;
  if (message.forgotten) json["forgotten"] = *message.forgotten;
  if (message.steps.empty()) return {json.dump()};
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < message.steps.size(); begin += kStepsInAText) {
    const std::size_t end = std::min(begin + kStepsInAText, message.steps.size());
    json["steps"] = protocol::StepsJson(std::span(message.steps).subspan(begin, end - begin));
    texts.push_back(json.dump());
  }
  return texts;
}

Result<ReplicaMessage> ParseReplicaMessage(std::string_view text) {
  return json_file::Read(
      text, "another replica's message", protocol::kDeepestReports, [](const Node& node) {
        ReplicaMessage message;
        message.replica = node.Member("replica").Text();
        message.job = node.Member("job").Text();
        message.node = node.Member("node").Text();
        message.restarted = node.Has("restarted") && node.Member("restarted").Flag();
        if (node.Has("forgotten")) {
          message.forgotten = node.Member("forgotten").Count(0, 999'999, "a dp_rank, from 0");
        }
        if (node.Has("steps")) message.steps = protocol::ReadSteps(node.Member("steps"));
        return message;
      });
}

}  // namespace perseus::server
