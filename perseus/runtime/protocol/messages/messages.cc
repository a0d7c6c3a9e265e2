// Format and NameOf. ParseRequest and ParseReply have a file of their own, message_reader.cc.
#include "perseus/runtime/protocol/messages/messages.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/runtime/protocol/messages/message_limits.h"

namespace perseus::protocol {
namespace {

using nlohmann::ordered_json;

// The length of the first character of `text` if it is printable, or 0.
std::size_t LengthOfFirst(std::string_view text) {
  constexpr std::size_t kLongestCharacter = 4;  // UTF-8.
  for (std::size_t size = 1; size <= std::min(kLongestCharacter, text.size()); ++size) {
    if (IsPrintable(text.substr(0, size))) return size;
  }
  return 0;
}

// The text in a form that ParseReply accepts.
std::string Presentable(std::string_view text, std::size_t longest) {
  if (text.size() <= longest && IsPrintable(text)) return std::string(text);
  constexpr std::string_view kCut = "...";
  std::string shown;
  while (!text.empty()) {
    const std::size_t size = LengthOfFirst(text);
    const std::string_view next = size == 0 ? "?" : text.substr(0, size);
    if (shown.size() + next.size() + kCut.size() > longest) return shown.append(kCut);
    shown += next;
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return shown;
}

double Within(double value, const Range& range) {
  return std::isnan(value) ? range.least : std::clamp(value, range.least, range.most);
}
int Within(int value, const Range& range) {
  return static_cast<int>(Within(static_cast<double>(value), range));
}

// ---- The key besides the version ----

struct Member {
  std::string_view name;
  ordered_json value;
};

ordered_json DescribeGrant(const Grant& grant) {
  ordered_json object{{"gpus", grant.gpus}};
  if (grant.uid) object["uid"] = *grant.uid;
  if (grant.cgroup) object["cgroup"] = *grant.cgroup;
  return object;
}

Member MemberOf(const Acquire& acquire) {
  return {"acquire",
          {{"gpus", acquire.gpus}, {"job", acquire.job}, {"heartbeat_s", acquire.heartbeat_s}}};
}
Member MemberOf(const Release& release) { return {"release", {{"lease", release.lease}}}; }
Member MemberOf(const Renew& renew) { return {"renew", {{"lease", renew.lease}}}; }
Member MemberOf(const DeclareSlowdown& declared) {
  return {"declare_slowdown", {{"lease", declared.lease}, {"slowdown", declared.slowdown}}};
}
Member MemberOf(const List&) { return {"list", ordered_json::object()}; }
Member MemberOf(const ReleaseGpu& release) { return {"release_gpu", {{"gpu", release.gpu}}}; }
Member MemberOf(const Grant& grant) { return {"grant", DescribeGrant(grant)}; }
Member MemberOf(const Revoke& revoke) { return {"revoke", DescribeGrant(revoke.grant)}; }

ordered_json Describe(const GpuStatus& gpu) {
  return {{"index", std::clamp(gpu.index, -1, kHighestIndex)},
          {"uuid", gpu.uuid},
          {"name", Presentable(gpu.name, kLongestName)},
          {"measure_only", Presentable(gpu.measure_only, kLongestName)},
          {"trouble", Presentable(gpu.trouble, kLongestName)},
          {"lease", gpu.lease},
          {"job", Presentable(gpu.job, kLongestName)},
          {"uid", gpu.uid},
          {"pid", std::max(gpu.pid, 0)},
          {"held_s", Within(gpu.held_s, kHeldSeconds)},
          {"slowdown", Within(gpu.slowdown, kSlowdown)},
          {"setting", Presentable(gpu.setting, kLongestName)},
          {"before", Presentable(gpu.before, kLongestName)},
          {"is_restoring", gpu.is_restoring},
          {"sm_clock_mhz", Within(gpu.sm_clock_mhz, kClockMhz)},
          {"power_w", Within(gpu.power_w, kPowerWatts)},
          {"temperature_c", Within(gpu.temperature_c, kTemperatureCelsius)},
          {"switches", std::min(gpu.switches, kMostSwitches)},
          {"postponed", std::min(gpu.postponed, kMostSwitches)},
          {"most_changes_per_s", Within(gpu.most_changes_per_s, kChangesPerSecond)},
          {"slow_by", Presentable(gpu.slow_by, kLongestName)},
          {"overridden", Presentable(gpu.overridden, kLongestName)}};
}

Member MemberOf(const Done&) { return {"done", ordered_json::object()}; }
Member MemberOf(const Lease& lease) {
  return {"lease",
          {{"id", lease.id}, {"gpus", lease.gpus}, {"sm_clocks_mhz", lease.sm_clocks_mhz}}};
}
Member MemberOf(const Listing& listing) {
  ordered_json gpus = ordered_json::array();
  for (const GpuStatus& gpu : listing.gpus) gpus.push_back(Describe(gpu));
  return {"listing", ordered_json{{"gpus", std::move(gpus)}}};
}
Member MemberOf(const Refused& refused) {
  return {
      "error",
      {{"code", NameOf(refused.code)}, {"message", Presentable(refused.message, kLongestText)}}};
}

template <typename Message>
std::string FormatMessage(const Message& message) {
  Member member = std::visit([](const auto& one) { return MemberOf(one); }, message);
  ordered_json object{{"perseus", kProtocolVersion}};
  object[std::string(member.name)] = std::move(member.value);
  // Texts from outside need not be UTF-8, but JSON has to be.
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

std::string Format(const Request& request) { return FormatMessage(request); }
std::string Format(const Reply& reply) { return FormatMessage(reply); }

std::string_view NameOf(Refusal refusal) {
  return kRefusalNames[static_cast<std::size_t>(refusal)];
}

}  // namespace perseus::protocol
