// Measures in a few minutes the facts about a node that planning needs.
//
//   SimulatedNode node(model, 8, 1);
//   auto qualified = Qualify(node, {});
//   hardware_facts::Write("facts.toml", qualified->facts);
//
// The measurements have this order, and take these parts of the duration:
//   counter       10 %  the energy counters under load, of all GPUs at once
//   power         25 %  idle, blocked and busy at several clocks; whether a range lock saves;
//                       of all GPUs at once
//   switches      25 %  up and down, near and far, one GPU and all at once
//   interference  40 %  operations with no changes, and with one every 1,000 to 10 ms
//
// If this node does not permit a measurement, the measurement is left out, and `limits` has a
// sentence that says why. So a fact without a value means "unknown".
//
// Qualify() changes clocks and does not restore them. The caller saves the settings before the
// call, and restores them afterwards, also after a failure (agent::SettingsGuard).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/hardware_facts/hardware_facts.h"
#include "perseus/runtime/qualifier/measured_node.h"

namespace perseus::qualifier {

struct QualifyOptions {
  double duration_s = 300;  // Approximate. Every measurement has a least number of samples.
  bool sets_clocks = true;
  // The highest rate at which a recording client reads (client/energy_meter.h).
  double reads_per_s = 25;
  std::function<bool()> should_stop = [] { return false; };
  // Receives the name of the part that begins, and the completed fraction of the whole.
  std::function<void(std::string_view label, double fraction)> progress = [](std::string_view,
                                                                             double) {};
};

struct Qualification {
  // The facts without host, version and time. The caller knows these three.
  hardware_facts::HardwareFacts facts;
  // Whether a driver accepted a setting, so that clocks have to be restored.
  bool has_set_clocks = false;
};

// Qualifies the node. Fails (kSystem) if the GPUs are of different kinds, if a driver fails in
// another way than by refusing, or if should_stop() returned true. Requires a node with at least
// one GPU.
Result<Qualification> Qualify(MeasuredNode& node, const QualifyOptions& options);

}  // namespace perseus::qualifier
