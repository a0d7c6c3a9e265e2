#include "perseus/runtime/client/settings.h"

#include <fmt/core.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "perseus/base/environment.h"
#include "perseus/base/excerpt.h"
#include "perseus/base/number.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::client {
namespace {

// The struct has no padding after its last member, where a later version adds members.
static_assert(sizeof(perseus_options) ==
              offsetof(perseus_options, reserved_too) + sizeof(perseus_options::reserved_too));

std::string TextOf(const char* option, const char* variable, const char* otherwise) {
  return option != nullptr ? option : EnvironmentOr(variable, otherwise);
}

// Returns PERSEUS_LOG_BYTES, or the default if that is not a number.
std::uint64_t MostLogBytes(std::vector<std::string>& problems) {
  const std::string text = TextOf(nullptr, "PERSEUS_LOG_BYTES", "");
  if (text.empty()) return kMostLogBytes;
  if (const auto bytes = ParseNumber<std::uint64_t>(text)) return *bytes;
  problems.push_back(fmt::format(
      "PERSEUS_LOG_BYTES is {}, but it is a number of bytes, such as {}; this number is "
      "used",
      Excerpt(text), kMostLogBytes));
  return kMostLogBytes;
}

// Returns `name`, or a similar name that the agent accepts.
std::string JobName(std::string name, std::vector<std::string>& problems) {
  const auto change = [&](std::string used) {
    problems.push_back(fmt::format(
        "the name of the job is {}, but it has 1 to {} bytes that can be printed; {} is "
        "used (see PERSEUS_JOB)",
        Excerpt(name), protocol::kLongestName, Excerpt(used)));
    return used;
  };
  if (name.size() <= protocol::kLongestName) return IsPrintable(name) ? name : change("training");
  std::string cut = name.substr(0, protocol::kLongestName);
  return change(IsPrintable(cut) ? std::move(cut) : "training");
}

// The path of a socket has a limit. If the absolute path is too long, a relative path stays as it
// is.
std::string AgentFrom(std::string agent) {
  if (agent == "own" || agent == "off") return agent;
  std::string absolute = Absolute(agent).string();
  return absolute.size() < sizeof sockaddr_un::sun_path ? absolute : agent;
}

std::string DevicesFrom(std::string devices) {
  constexpr std::string_view kVirtual = "virtual:";
  if (!devices.starts_with(kVirtual)) return devices;
  return std::string(kVirtual) + Absolute(devices.substr(kVirtual.size())).string();
}

// Reads `stages` and `pp_ranks`. If one is wrong, neither is recorded: training goes on.
void ReadPipeline(const perseus_options& options, Settings& settings) {
  const protocol::HighestRanks highest;
  if (options.pp_ranks < 0 || options.pp_ranks > highest.pp_rank + 1 ||
      (options.pp_ranks > 0 && options.pp_ranks <= options.pp_rank)) {
    settings.problems.push_back(fmt::format(
        "pp_ranks is {}, but it is the number of ranks of the pipeline, more than pp_rank {} and "
        "at most {}, or 0 if it is unknown; it is not recorded",
        options.pp_ranks, options.pp_rank, highest.pp_rank + 1));
    return;
  }
  const std::string text = options.stages == nullptr ? "" : options.stages;
  auto stages = protocol::ParseStages(text);
  if (!stages) {
    settings.problems.push_back(stages.error().Message() + "; they are not recorded");
    return;
  }
  settings.stages = *std::move(stages);
  settings.pp_ranks = options.pp_ranks;
}

}  // namespace

std::filesystem::path Absolute(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute;
}

Settings SettingsFrom(const perseus_options* options) {
  perseus_options all = PERSEUS_OPTIONS_INIT;
  if (options != nullptr) std::memcpy(&all, options, std::min(options->size, sizeof all));
  Settings settings;
  settings.name = {all.dp_rank, all.pp_rank, all.tp_rank};
  settings.gpu = TextOf(all.gpu, "PERSEUS_GPU", "");
  settings.job = JobName(TextOf(all.job, "PERSEUS_JOB", "training"), settings.problems);
  settings.job_directory = Absolute(TextOf(all.job_directory, "PERSEUS_JOB_DIR", ""));
  settings.plan = Absolute(TextOf(all.plan, "PERSEUS_PLAN", ""));
  settings.agent = AgentFrom(TextOf(all.agent, "PERSEUS_AGENT", kNodesSocket));
  settings.devices = DevicesFrom(TextOf(all.devices, "PERSEUS_DEVICES", "auto"));
  settings.most_log_bytes = MostLogBytes(settings.problems);
  settings.plan_expires_at = all.plan_expires_at;
  ReadPipeline(all, settings);
  if ((all.flags & PERSEUS_QUIET) != 0) settings.warning_output = WarningOutput::kQuiet;
  return settings;
}

}  // namespace perseus::client
