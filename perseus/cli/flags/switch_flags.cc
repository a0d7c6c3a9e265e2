#include "perseus/cli/flags/switch_flags.h"

#include <functional>
#include <string>

#include "perseus/cli/flags/flag_checks.h"
#include "perseus/planning/job/job.h"

namespace perseus::cli {
namespace {

using Limit = recipe::ChangeRules::Limit;

constexpr const char* kClockChanges = "Clock changes";
constexpr const char* kAuto = "auto";

void AddPerInstructionFlag(CLI::App& verb, recipe::ChangeRules& rules, CLI::Option* limit) {
  verb.add_flag_function(
          "--per-instruction", [&rules](std::int64_t) { rules.limit = Limit::kNone; },
          "No limit of clock changes, even if the job file or --facts has one: a clock for each "
          "instruction")
      ->group(kClockChanges)
      ->excludes(limit);
}

// Adds --max-switches. Its value is a number or, if `check` allows it, "auto".
CLI::Option* AddMaxSwitches(CLI::App& verb, recipe::ChangeRules& rules, const char* about,
                            const char* type, std::function<std::string(std::string&)> check) {
  const auto store = [&rules](const std::string& text) {
    rules.limit = text == kAuto ? Limit::kPick : Limit::kGiven;
    if (rules.limit == Limit::kGiven) rules.most_changes = std::stoi(text);
  };
  return verb.add_option_function<std::string>("--max-switches", store, about)
      ->type_name(type)
      ->group(kClockChanges)
      ->check(CLI::Validator(std::move(check), ""));
}

std::string CheckNumber(std::string& text) { return WholeNumberIn({0, job::kMostSwitches})(text); }

}  // namespace

CLI::Option* AddMaxSwitchesFlag(CLI::App& verb, recipe::ChangeRules& rules, const char* about) {
  return AddMaxSwitches(verb, rules, about, "N", CheckNumber);
}

void AddLimitFlags(CLI::App& verb, recipe::ChangeRules& rules) {
  AddPerInstructionFlag(
      verb, rules,
      AddMaxSwitchesFlag(verb, rules,
                         "At most this many clock changes of each GPU per iteration, the change "
                         "back at the end included (default: max_switches of the job file, or the "
                         "fewest found that keep most of the saving)"));
}

void AddSwitchFlags(CLI::App& verb, recipe::ChangeRules& rules) {
  const auto check = [](std::string& text) -> std::string {
    if (text == kAuto) return {};
    const std::string problem = CheckNumber(text);
    return problem.empty() ? problem : problem + ", or auto";
  };
  CLI::Option* limit = AddMaxSwitches(
      verb, rules,
      "At most this many clock changes of each GPU per iteration, the change back at the end "
      "included (1 is the same as 0); auto: the fewest found that keep most of the saving. Without "
      "this flag, the same with a shorter search",
      "N|auto", check);
  AddPerInstructionFlag(verb, rules, limit);
  verb.add_flag("--switch-tradeoff", rules.with_tradeoff,
                "Also print what limits of 0 to 16 clock changes (and up to 48 if these keep too "
                "little) would save")
      ->group(kClockChanges);
}

}  // namespace perseus::cli
