// A fixture for tests with ranks on the node of agent_node.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/client/agent_node.h"

namespace perseus {

class ClientTest : public AgentNodeTest {
 protected:
  RankSession::Place Place(int rank = 0) const {
    return {socket(), devices(), Uuid(rank), rank, "", "", 0};
  }
  RankSession::Place PlaceWithPlan(const plan_file::PlanFile& plan, int rank = 0) const {
    Write("plan.json", plan_file::FormatPlan(plan));
    RankSession::Place place = Place(rank);
    place.plan = (directory_ / "plan.json").string();
    return place;
  }
  // Runs a step of one microbatch, which ends at this clock. After a step, the GPU keeps its clock
  // for a short time only.
  testing::AssertionResult EndsStepAt(RankSession& rank, int clock_mhz) const {
    perseus_step_begin(rank.get());
    rank.Run(PERSEUS_FORWARD, 0);
    rank.Run(PERSEUS_BACKWARD, 0);
    auto result = LockBecomes(0, clock_mhz);
    perseus_step_end(rank.get());
    return result;
  }
  static int ClockOf(const plan_file::PlanFile& plan, std::size_t at, std::size_t rank = 0) {
    return static_cast<int>(plan.pp_ranks[rank].instructions[at].frequency_mhz);
  }
  // Returns a plan of rank 0 with these clocks. They must be clocks of an A100.
  static plan_file::PlanFile PlanWithClocks(const std::vector<int>& clocks) {
    plan_file::PlanFile plan = PlanGpipe(1, static_cast<int>(clocks.size()) / 2);
    for (std::size_t i = 0; i < clocks.size(); ++i) {
      plan.pp_ranks[0].instructions[i].frequency_mhz = clocks[i];
    }
    return plan;
  }
  nlohmann::json Listed(int gpu) const {
    const auto listing =
        nlohmann::json::parse(RunProgram({"gpu", "list", "--json", "--socket", socket()}));
    for (const auto& listed : listing.at("gpus")) {
      if (listed.at("uuid") == Uuid(gpu)) return listed;
    }
    return {};
  }
};

}  // namespace perseus
