#include "perseus/runtime/access/access_judgment.h"

#include <filesystem>
#include <utility>

namespace perseus::agent {
namespace {

using protocol::Refusal;

// The kernel's answer for GPUs with device files.
Answer<void> AskKernel(const Host& host, const Caller& caller, const std::vector<GpuFile>& gpus,
                       AccessChecker& checker) {
  const auto identity = IdentityOf(host, caller);
  if (!identity) return tl::unexpected<protocol::Refused>(identity.error());
  std::vector<std::filesystem::path> devices;
  for (const GpuFile& gpu : gpus) devices.push_back(gpu.device);
  const auto errors = checker.Check(*identity, devices);
  if (!errors) {
    return Refuse(Refusal::kUnavailable,
                  "cannot check which GPUs the user may use: {} (grant the GPU with perseus gpu "
                  "grant, as root)",
                  errors.error().message);
  }
  // Still in the cgroups that the child joined.
  const auto now = WithCgroups(host, caller);
  if (!now) return tl::unexpected<protocol::Refused>(now.error());
  if (now->cgroups != caller.cgroups) {
    return Refuse(Refusal::kUnavailable, "process {} moved to another cgroup meanwhile (try again)",
                  caller.process.pid);
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (const int error = (*errors)[i]; error != 0) {
      return tl::unexpected(NoRightTo(caller, gpus[i], error));
    }
  }
  return {};
}

}  // namespace

Answer<void> JudgeAccess(const Host& host, const AccessQuestion& question, AccessChecker& checker) {
  const auto caller = WithCgroups(host, question.caller);
  if (!caller) return tl::unexpected<protocol::Refused>(caller.error());
  std::vector<GpuFile> to_ask;
  for (const GpuFile& gpu : question.gpus) {
    if (NamedRightTo(*caller, gpu.uuid, question.grants)) continue;
    if (gpu.device.empty()) return tl::unexpected(NoRightTo(*caller, gpu, 0));
    to_ask.push_back(gpu);
  }
  if (to_ask.empty()) return {};
  return AskKernel(host, *caller, to_ask, checker);
}

}  // namespace perseus::agent
