// Makes a profile for a schedule that a fuzzer made.
#pragma once

#include <string>
#include <vector>

#include "perseus/planning/profile/profile.h"
#include "perseus/planning/schedule/schedule.h"

namespace perseus::fuzz {

// Returns a profile with every stage and kind that the schedule may have, at two clocks.
inline profile::Profile ProfileFor(const schedule::Schedule& schedule,
                                   const std::vector<std::string>& other_knob_names = {}) {
  std::vector<profile::ProfileEntry> entries;
  for (std::size_t stage = 0; stage < schedule.pp_rank_of_stage.size(); ++stage) {
    for (InstructionKind kind :
         {InstructionKind::kForward, InstructionKind::kBackward, InstructionKind::kBackwardInput,
          InstructionKind::kBackwardWeight, InstructionKind::kRecompute}) {
      profile::ProfileEntry entry{
          schedule.pp_rank_of_stage[stage], schedule.chunk_of_stage[stage], kind, {}};
      for (const int frequency_mhz : {1410, 1200}) {
        profile::Option option;
        option.frequency_mhz = frequency_mhz;
        option.other_knobs.resize(other_knob_names.size(), 1);
        option.time = 1;
        option.energy_j = 1;
        entry.options.push_back(std::move(option));
      }
      entries.push_back(std::move(entry));
    }
  }
  return profile::Profile("profile", other_knob_names, std::move(entries));
}

}  // namespace perseus::fuzz
