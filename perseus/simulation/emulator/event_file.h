// The events of an emulation, as a file (TOML; docs/formats.md, "Events"):
//
//   [[straggler]]
//   dp_rank = 3
//   pp_rank = 2               # default: all pp_ranks of the pipeline
//   from = 100                # the first iteration, from 0 (the default), or from_s, a time
//   until = 300               # the first iteration without it, or until_s; default: it stays
//   slowdown = 1.2            # or max_frequency_mhz = 1050, or input_delay_s = 0.4
//   [[plan]]
//   from = 500
//   delay_s = 2.5             # how long it takes to arrive; default: 0 (also in [[power_cap]])
//   file = "plans/slowdown-5.json"      # relative to this file
//   [[power_cap]]
//   from = 700
//   until = 800               # or until_s; default: it stays
//   watts = 180000            # of the whole job
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/simulation/emulator/emulation.h"

namespace perseus::emulator {

struct Events {
  struct PushedPlan {
    Moment from;
    std::string file;   // As written.
    std::string where;  // "events.toml:11".
  };
  std::vector<Disturbance> disturbances;
  std::vector<PushedPlan> plans;
  std::vector<PowerCap> power_caps;  // Without their options.
};

// Parses a file of events. Unknown keys, wrong types and values out of range are errors with file
// and line.
Result<Events> ParseEvents(std::string_view toml, std::string_view name);

}  // namespace perseus::emulator
