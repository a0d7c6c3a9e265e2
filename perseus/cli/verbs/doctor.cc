// `perseus doctor` shows what works on this node, and the commands that fix problems.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/base/wording.h"
#include "perseus/cli/flags/node_setup.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/runtime/agent/doctor.h"
#include "perseus/runtime/device/open_devices.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"

namespace perseus::cli {
namespace {

constexpr const char* kDoctorAbout =
    "Show what works on this node, what does not, and the command that fixes each problem.\n"
    "Changes nothing.";
constexpr const char* kDoctorExamples = "  perseus doctor";

struct DoctorFlags {
  DirectFlags direct;
  bool as_json = false;
};

std::string FormatScreen(const std::vector<agent::Finding>& findings) {
  std::string text;
  for (const agent::Finding& finding : findings) {
    constexpr std::string_view kMarks[] = {"ok     ", "note   ", "PROBLEM"};
    text += fmt::format("{}  {}: {}\n", kMarks[static_cast<std::size_t>(finding.level)],
                        finding.what, finding.detail);
    if (!finding.remedy.empty()) text += fmt::format("         -> {}\n", finding.remedy);
  }
  return text;
}

std::string FormatJson(const std::vector<agent::Finding>& findings) {
  auto list = nlohmann::ordered_json::array();
  for (const agent::Finding& finding : findings) {
    constexpr const char* kLevels[] = {"ok", "note", "problem"};
    list.push_back({{"level", kLevels[static_cast<std::size_t>(finding.level)]},
                    {"what", finding.what},
                    {"detail", finding.detail},
                    {"remedy", finding.remedy}});
  }
  const nlohmann::ordered_json object{
      {"format", "perseus-doctor"}, {"version", 1}, {"findings", std::move(list)}};
  return JsonText(object, 2) + "\n";
}

Result<void> RunDoctor(const Streams& streams, const DoctorFlags& flags) {
  std::vector<agent::Finding> findings = ExamineNode(flags.direct);
  const auto devices = device::OpenDevices(flags.direct.devices, virtual_gpu::OpenVirtualNode);
  std::ranges::move(agent::ExamineDevices(devices), std::back_inserter(findings));

  if (auto printed = streams.Print(flags.as_json ? FormatJson(findings) : FormatScreen(findings));
      !printed) {
    return printed;
  }
  const auto problems =
      std::ranges::count(findings, agent::Finding::Level::kProblem, &agent::Finding::level);
  if (problems == 0) return {};
  return FailAs(ErrorKind::kSystem, "{} (see above)", Counted(problems, "problem"));
}

}  // namespace

Verb AddDoctorVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<DoctorFlags>(program, "doctor", kDoctorAbout, kDoctorExamples);
  AddDirectFlags(add, flags->direct);
  // The flag has no effect, because the verb changes nothing. Older scripts still use this flag.
  verb->add_flag("--read-only")->group("");
  verb->add_flag("--json", flags->as_json, "Print JSON instead of text");
  return {verb, [flags = flags](const Streams& streams) { return RunDoctor(streams, *flags); }};
}

}  // namespace perseus::cli
