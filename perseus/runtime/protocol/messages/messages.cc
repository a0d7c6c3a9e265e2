#include "perseus/runtime/protocol/messages/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/limits.h"
#include "perseus/base/wording.h"

namespace perseus::protocol {
namespace {

using json_file::Node;
using json_file::Throw;
using nlohmann::ordered_json;

constexpr int kProtocolVersion = 1;

struct Range {
  double least = 0;
  double most = 0;
};
constexpr Range kHeartbeatSeconds = {1, 3600};
constexpr Range kSlowdown = {1, 100};
constexpr Range kHeldSeconds = {0, 1e10};
constexpr Range kClockMhz = {0, kHighestFrequencyMhz};
constexpr Range kPowerWatts = {0, kMostMeasuredWatts};
constexpr int kHighestIndex = 65'535;
constexpr Range kChangesPerSecond = {0, kMostChangesPerSecond};
constexpr Range kTemperatureCelsius = {-300, 1000};

// These names are in the order of Refusal.
constexpr std::array<std::string_view, 6> kRefusalNames = {
    "malformed", "held", "not-allowed", "no-such-gpu", "no-such-lease", "unavailable"};

// ==== Reading. Reading is strict, because the agent trusts no client. ====

// In {"perseus":1,"lease":{"sm_clocks_mhz":[[210]]}}, a clock is at depth 4.
constexpr int kMaxMessageDepth = 4;

// ---- Values ----

std::string ReadText(const Node& node, std::size_t longest) {
  std::string text = node.Text();
  if (text.size() > longest) {
    Throw("{} has {} bytes (write at most {})", node.path, text.size(), longest);
  }
  if (!IsPrintable(text)) {
    Throw("{} is {}, which has control characters (leave them out)", node.path, Excerpt(text));
  }
  return text;
}

// Reads a text that identifies something, so the text must not be empty.
std::string ReadName(const Node& node) {
  std::string name = ReadText(node, kLongestName);
  if (name.empty()) Throw("{} is empty (write a name)", node.path);
  return name;
}

double ReadNumber(const Node& node, const Range& range, std::string_view unit) {
  return node.Number(range.least, range.most, unit);
}

int ReadCount(const Node& node, const Range& range, std::string_view unit) {
  return node.Count(static_cast<int>(range.least), static_cast<int>(range.most), unit);
}

// Reads a whole number that may not fit an int.
template <typename Whole>
Whole ReadWhole(const Node& node, Whole most, std::string_view unit) {
  (void)node.Number(0, static_cast<double>(most), unit);
  if (!node.value.is_number_integer()) Throw("{} is not a whole number ({})", node.path, unit);
  return node.value.get<Whole>();
}

std::vector<std::string> ReadGpus(const Node& node) {
  const std::size_t size = node.ListSize();
  if (size < 1 || size > std::size_t{kMostGpus}) {
    Throw("{} has {} GPUs (name 1 to {})", node.path, size, kMostGpus);
  }
  std::vector<std::string> gpus;
  std::set<std::string_view> seen;
  gpus.reserve(size);  // `seen` points into this vector.
  for (std::size_t i = 0; i < size; ++i) {
    gpus.push_back(ReadName(node[i]));
    if (!seen.insert(gpus.back()).second) {
      Throw("{} is {}, which is already in the list (name each GPU once)", node[i].path,
            Excerpt(gpus.back()));
    }
  }
  return gpus;
}

// Whether the path is in its only valid form. A revocation has to name exactly the path of its
// grant.
bool IsPlainPath(std::string_view path) {
  if (!path.starts_with('/')) return false;
  if (path == "/") return true;
  while (!path.empty()) {
    path.remove_prefix(1);  // The slash.
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty() || part == "." || part == "..") return false;
    path.remove_prefix(part.size());
  }
  return true;
}

std::string ReadCgroup(const Node& node) {
  std::string path = ReadText(node, kLongestCgroup);
  if (!IsPlainPath(path)) {
    Throw("{} is {}, not the path of a cgroup (write it as /proc/PID/cgroup has it: /slurm/job_17)",
          node.path, Excerpt(path));
  }
  return path;
}

// ---- Requests ----

Request ReadAcquire(const Node& node) {
  node.RequireObject({"gpus", "job", "heartbeat_s"});
  Acquire acquire{.gpus = ReadGpus(node.Member("gpus")), .job = ReadName(node.Member("job"))};
  if (node.Has("heartbeat_s")) {
    acquire.heartbeat_s = ReadNumber(node.Member("heartbeat_s"), kHeartbeatSeconds, "seconds");
  }
  return acquire;
}

// Reads a Release or a Renew.
template <typename OfLease>
Request ReadOfLease(const Node& node) {
  node.RequireObject({"lease"});
  return OfLease{ReadName(node.Member("lease"))};
}

Request ReadDeclareSlowdown(const Node& node) {
  node.RequireObject({"lease", "slowdown"});
  return DeclareSlowdown{ReadName(node.Member("lease")),
                         ReadNumber(node.Member("slowdown"), kSlowdown, "a ratio, such as 1.02")};
}

// Reads a List or a Done.
template <typename Message, typename Empty>
Message ReadEmpty(const Node& node) {
  node.RequireObject({});
  return Empty{};
}

Request ReadReleaseGpu(const Node& node) {
  node.RequireObject({"gpu"});
  return ReleaseGpu{ReadName(node.Member("gpu"))};
}

Grant ReadGrant(const Node& node) {
  node.RequireObject({"gpus", "uid", "cgroup"});
  if (node.Has("uid") == node.Has("cgroup")) {
    Throw("{} needs either uid or cgroup (name the user or the cgroup)", node.path);
  }
  Grant grant{.gpus = ReadGpus(node.Member("gpus")), .uid = {}, .cgroup = {}};
  if (node.Has("uid")) {
    constexpr std::uint32_t kMostUid =
        std::numeric_limits<std::uint32_t>::max() - 1;  // -1 is no user.
    grant.uid = ReadWhole(node.Member("uid"), kMostUid, "a user's number");
  } else {
    grant.cgroup = ReadCgroup(node.Member("cgroup"));
  }
  return grant;
}

Request ReadGrantRequest(const Node& node) { return ReadGrant(node); }
Request ReadRevoke(const Node& node) { return Revoke{ReadGrant(node)}; }

// ---- Replies ----

std::vector<int> ReadClocks(const Node& node) {
  const std::size_t size = node.ListSize();
  if (size < 1 || size > std::size_t{kMostClocks}) {
    Throw("{} has {} clocks (expected 1 to {})", node.path, size, kMostClocks);
  }
  std::vector<int> clocks;
  for (std::size_t i = 0; i < size; ++i) {
    clocks.push_back(ReadCount(node[i], kClockMhz, "MHz"));
    if (i > 0 && clocks[i] <= clocks[i - 1]) {
      Throw("{} is not above the previous clock (expected ascending clocks)", node[i].path);
    }
  }
  return clocks;
}

Reply ReadLease(const Node& node) {
  node.RequireObject({"id", "gpus", "sm_clocks_mhz"});
  Lease lease{.id = ReadName(node.Member("id")),
              .gpus = ReadGpus(node.Member("gpus")),
              .sm_clocks_mhz = {}};
  const Node clocks = node.Member("sm_clocks_mhz");
  if (clocks.ListSize() != lease.gpus.size()) {
    Throw("{} has {} GPUs (expected {}, as in gpus)", clocks.path, clocks.ListSize(),
          lease.gpus.size());
  }
  for (std::size_t i = 0; i < lease.gpus.size(); ++i) {
    lease.sm_clocks_mhz.push_back(ReadClocks(clocks[i]));
  }
  return lease;
}

GpuStatus ReadStatus(const Node& node) {
  node.RequireObject({"index",    "uuid",          "name",     "measure_only", "trouble",
                      "lease",    "job",           "uid",      "pid",          "held_s",
                      "slowdown", "setting",       "before",   "is_restoring", "sm_clock_mhz",
                      "power_w",  "temperature_c", "switches", "postponed",    "most_changes_per_s",
                      "slow_by",  "overridden"});
  const auto text = [&](std::string_view key) { return ReadText(node.Member(key), kLongestName); };
  GpuStatus gpu;
  gpu.index = node.Member("index").Count(-1, kHighestIndex, "a GPU's number");
  gpu.uuid = ReadName(node.Member("uuid"));
  gpu.name = text("name");
  gpu.measure_only = text("measure_only");
  gpu.trouble = text("trouble");
  gpu.lease = text("lease");
  gpu.job = text("job");
  gpu.uid =
      ReadWhole(node.Member("uid"), std::numeric_limits<std::uint32_t>::max(), "a user's number");
  gpu.pid = node.Member("pid").Count(0, std::numeric_limits<std::int32_t>::max(), "a process");
  gpu.held_s = ReadNumber(node.Member("held_s"), kHeldSeconds, "seconds");
  gpu.slowdown = ReadNumber(node.Member("slowdown"), kSlowdown, "a ratio");
  gpu.setting = text("setting");
  gpu.before = text("before");
  gpu.is_restoring = node.Member("is_restoring").Flag();
  if (node.Has("sm_clock_mhz")) {
    gpu.sm_clock_mhz = ReadCount(node.Member("sm_clock_mhz"), kClockMhz, "MHz");
  }
  if (node.Has("power_w")) gpu.power_w = ReadNumber(node.Member("power_w"), kPowerWatts, "watts");
  if (node.Has("temperature_c")) {
    gpu.temperature_c = ReadCount(node.Member("temperature_c"), kTemperatureCelsius, "°C");
  }
  gpu.switches = ReadWhole(node.Member("switches"), kMostSwitches, "a count");
  gpu.postponed = ReadWhole(node.Member("postponed"), kMostSwitches, "a count");
  gpu.most_changes_per_s =
      ReadNumber(node.Member("most_changes_per_s"), kChangesPerSecond, "changes per second");
  gpu.slow_by = text("slow_by");
  gpu.overridden = text("overridden");
  return gpu;
}

Reply ReadListing(const Node& node) {
  node.RequireObject({"gpus"});
  const Node gpus = node.Member("gpus");
  Listing listing;
  for (std::size_t i = 0; i < gpus.ListSize(); ++i) listing.gpus.push_back(ReadStatus(gpus[i]));
  return listing;
}

Reply ReadRefused(const Node& node) {
  node.RequireObject({"code", "message"});
  const Node code = node.Member("code");
  const std::string name = ReadName(code);
  const auto found = std::find(kRefusalNames.begin(), kRefusalNames.end(), name);
  if (found == kRefusalNames.end()) {
    Throw("{} is {} ({})", code.path, Excerpt(name), DidYouMean(name, kRefusalNames));
  }
  return Refused{static_cast<Refusal>(found - kRefusalNames.begin()),
                 ReadText(node.Member("message"), kLongestText)};
}

// ---- The kind of message ----

template <typename Message>
struct Reader {
  std::string_view name;
  Message (*read)(const Node&);
};
constexpr std::array<Reader<Request>, 8> kRequests = {{{"acquire", ReadAcquire},
                                                       {"release", ReadOfLease<Release>},
                                                       {"renew", ReadOfLease<Renew>},
                                                       {"declare_slowdown", ReadDeclareSlowdown},
                                                       {"list", ReadEmpty<Request, List>},
                                                       {"release_gpu", ReadReleaseGpu},
                                                       {"grant", ReadGrantRequest},
                                                       {"revoke", ReadRevoke}}};
constexpr std::array<Reader<Reply>, 4> kReplies = {{{"done", ReadEmpty<Reply, Done>},
                                                    {"lease", ReadLease},
                                                    {"listing", ReadListing},
                                                    {"error", ReadRefused}}};

// Checks the version before the other keys, because their meaning depends on the version.
void CheckVersion(const Node& root) {
  if (!root.value.is_object())
    Throw("not an object (write {{\"perseus\":{}, ...}})", kProtocolVersion);
  const Node version =
      root.Member("perseus", fmt::format("write \"perseus\":{}", kProtocolVersion));
  if (!version.value.is_number_integer() || version.value != kProtocolVersion) {
    Throw(
        "perseus is {}, but this program supports only version {} (install the same version of "
        "agent and client)",
        Excerpt(JsonText(version.value)), kProtocolVersion);
  }
}

template <typename Message, std::size_t kCount>
Message ReadMessage(const Node& root, const std::array<Reader<Message>, kCount>& readers) {
  CheckVersion(root);
  std::array<std::string_view, kCount> names;
  std::transform(readers.begin(), readers.end(), names.begin(),
                 [](const Reader<Message>& reader) { return reader.name; });
  if (root.value.size() != 2) {
    Throw("has {} keys besides the version (write one of: {})", root.value.size() - 1,
          fmt::join(names, ", "));
  }
  for (const auto& [key, ignored] : root.value.items()) {
    if (key == "perseus") continue;
    const auto found = std::find(names.begin(), names.end(), key);
    if (found == names.end()) {
      Throw("{} is not a known message ({})", Excerpt(key), DidYouMean(key, names));
    }
    return readers[static_cast<std::size_t>(found - names.begin())].read(root.Member(key));
  }
  Throw("has no key besides the version");  // Unreachable, because there are two keys.
}

template <typename Message, std::size_t kCount>
Result<Message> ParseMessage(std::string_view text, std::string_view name,
                             const std::array<Reader<Message>, kCount>& readers) {
  if (text.size() > kLongestMessage) {
    return Fail(InFile(name), "has {} bytes (write at most {})", text.size(), kLongestMessage);
  }
  return json_file::Read(text, name, kMaxMessageDepth,
                         [&](const Node& root) { return ReadMessage(root, readers); });
}

// ==== Writing ====

// Returns the length of the first character of `text` if it is printable, and otherwise 0.
std::size_t LengthOfFirst(std::string_view text) {
  constexpr std::size_t kLongestCharacter = 4;  // UTF-8.
  for (std::size_t size = 1; size <= std::min(kLongestCharacter, text.size()); ++size) {
    if (IsPrintable(text.substr(0, size))) return size;
  }
  return 0;
}

// Returns the text in a form that ParseReply accepts.
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
  const auto known = [](const auto& value, const auto& range) {
    return value ? ordered_json(Within(*value, range)) : ordered_json();
  };
  ordered_json status = {{"index", std::clamp(gpu.index, -1, kHighestIndex)},
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
                         {"sm_clock_mhz", known(gpu.sm_clock_mhz, kClockMhz)},
                         {"power_w", known(gpu.power_w, kPowerWatts)},
                         {"temperature_c", known(gpu.temperature_c, kTemperatureCelsius)},
                         {"switches", std::min(gpu.switches, kMostSwitches)},
                         {"postponed", std::min(gpu.postponed, kMostSwitches)},
                         {"most_changes_per_s", Within(gpu.most_changes_per_s, kChangesPerSecond)},
                         {"slow_by", Presentable(gpu.slow_by, kLongestName)},
                         {"overridden", Presentable(gpu.overridden, kLongestName)}};
  for (const char* key : {"sm_clock_mhz", "power_w", "temperature_c"}) {
    if (status[key].is_null()) status.erase(key);
  }
  return status;
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
  // Texts from outside may be invalid UTF-8, but JSON has to be valid UTF-8.
  return JsonText(object);
}

}  // namespace

Result<Request> ParseRequest(std::string_view text) {
  return ParseMessage(text, "request", kRequests);
}

Result<Reply> ParseReply(std::string_view text) { return ParseMessage(text, "reply", kReplies); }

std::string Format(const Request& request) { return FormatMessage(request); }
std::string Format(const Reply& reply) { return FormatMessage(reply); }

std::string_view NameOf(Refusal refusal) {
  return kRefusalNames[static_cast<std::size_t>(refusal)];
}

}  // namespace perseus::protocol
