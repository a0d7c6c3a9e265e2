#include "perseus/cluster/telemetry/replica_messages.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "perseus/base/json_file.h"
#include "perseus/base/json_text.h"

namespace perseus::telemetry {
namespace {

using json_file::Node;
using nlohmann::ordered_json;

// The largest number of steps in one text. A step takes at most 200 bytes, and the names take 400.
constexpr std::size_t kMaxStepsOfText = 30;

}  // namespace

std::vector<std::string> FormatReplicaMessage(const ReplicaMessage& message) {
  ordered_json json{{"replica", message.replica}, {"job", message.job}, {"node", message.node}};
  if (message.restarted) json["restarted"] = true;
  if (message.steps.empty()) return {JsonText(json)};
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < message.steps.size(); begin += kMaxStepsOfText) {
    const std::size_t end = std::min(begin + kMaxStepsOfText, message.steps.size());
    json["steps"] = protocol::StepsJson(std::span(message.steps).subspan(begin, end - begin));
    texts.push_back(JsonText(json));
  }
  return texts;
}

Result<ReplicaMessage> ParseReplicaMessage(std::string_view text) {
  return json_file::Read(
      text, "the message of another replica", protocol::kDeepestReports, [](const Node& node) {
        ReplicaMessage message;
        message.replica = node.Member("replica").Text();
        message.job = node.Member("job").Text();
        message.node = node.Member("node").Text();
        message.restarted = node.Has("restarted") && node.Member("restarted").Flag();
        if (node.Has("steps")) message.steps = protocol::ReadSteps(node.Member("steps"));
        return message;
      });
}

}  // namespace perseus::telemetry
