#include "perseus/cli/flags/switch_flags.h"

#include "perseus/cli/flags/flag_checks.h"
#include "perseus/planning/job/job.h"

namespace perseus::cli {

recipe::ChangeRules SwitchFlags::rules() const {
  using Limit = recipe::ChangeRules::Limit;
  return {.limit = per_instruction ? Limit::kNone
                   : picks_limit   ? Limit::kPick
                   : most_switches ? Limit::kGiven
                                   : Limit::kPickShortly,
          .most_changes = most_switches.value_or(0),
          .with_tradeoff = with_tradeoff};
}

CLI::Option* AddPerInstructionFlag(CLI::App& verb, bool& per_instruction, CLI::Option* limit) {
  return verb
      .add_flag("--per-instruction", per_instruction,
                "No limit of clock changes, even if the job file or --facts has one: a clock for "
                "each instruction")
      ->excludes(limit);
}

void AddSwitchFlags(CLI::App& verb, SwitchFlags& flags) {
  const auto check = [](std::string& text) -> std::string {
    if (text == "auto") return {};
    const std::string problem = WholeNumberIn({0, job::kMostSwitches})(text);
    return problem.empty() ? problem : problem + ", or auto";
  };
  const auto store = [&flags](const std::string& text) {
    flags.picks_limit = text == "auto";
    flags.most_switches.reset();
    if (!flags.picks_limit) flags.most_switches = std::stoi(text);
  };
  CLI::Option* limit =
      verb.add_option_function<std::string>(
              "--max-switches", store,
              "At most this many clock changes of each GPU per iteration, the change back at the "
              "end included (1 is the same as 0); auto: the fewest found that keep 95 % of the "
              "saving. Without this flag, the same with a shorter search")
          ->type_name("N|auto")
          ->group("Clock changes")
          ->check(CLI::Validator(check, ""));
  AddPerInstructionFlag(verb, flags.per_instruction, limit)->group("Clock changes");
  verb.add_flag("--switch-tradeoff", flags.with_tradeoff,
                "Also print what limits of 0 to 16 clock changes (and up to 48 if these keep too "
                "little) would save")
      ->group("Clock changes");
}

}  // namespace perseus::cli
