// Chooses the targets to plan, and plans them without a limit of clock changes: several plans at a
// time, one on each core.
//
// First every target gets a plan of a short search, so that the user soon sees all rows. Then the
// searches go on, cycle by cycle, until the effort is done or the user asks to finish. No plan
// depends on the number of cores.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/planning/plan/planner.h"
#include "perseus/planning/plan/target.h"
#include "perseus/planning/recipe/progress.h"

namespace perseus::recipe {

// Why a target is planned. If an asked target has no plan within its limit or with its margin,
// planning fails. Other targets are then left out.
//
// A better plan goes only to targets of the same or a later group. (The first two count as one.) So
// the plans of asked targets are the same for an interface that shows a table and for one that does
// not.
enum class Group {
  kAsked,
  kReference,  // No slowdown (its plan decides a picked limit) and candidates, if not asked for.
  kTable,
  kStop,  // A further slowdown for the slider of the report. `perseus plan` prints no row for it.
};

struct WantedTarget {
  plan::Target target;
  Group group = Group::kAsked;

  bool is_stop() const { return group == Group::kStop; }
};

struct PlannedTarget {
  plan::Target target;
  std::string slug;  // The name of its file without the extension.
  plan::Plan plan;
  Group group = Group::kAsked;
  std::optional<int> most_switches = {};  // The limit of clock changes that it was made for.

  bool is_stop() const { return group == Group::kStop; }
  bool is_asked() const { return group == Group::kAsked; }
};

// Whether a plan of `from` may become the plan of a target of `to`.
bool MayTake(Group from, Group to);

// Whether a plan that was made for another target may be the best one for an asked target: for a
// price and the energy-delay product. Then each interface plans the table, as kReference.
bool NeedsCandidates(const std::vector<plan::Target>& asked);

// Returns all targets to plan, in this order: no slowdown, larger slowdowns, least energy, and then
// the other asked targets. If `longest` is empty, returns only no slowdown and the asked targets.
// Else it is the time of least energy. Adds at most `stops` stops: slowdowns at even distances,
// below the slowdown of least energy.
std::vector<WantedTarget> TargetsToPlan(const std::vector<plan::Target>& asked,
                                        const plan::Planner& planner,
                                        std::optional<Nanoseconds> longest, int stops);

// The default number of stops: at most 10, and fewer for large jobs, so that planning does not take
// much longer. 0 for jobs with tens of thousands of instructions.
int DefaultStops(const schedule::InstructionGraph& graph);

// Plans several targets, with more and more effort.
class TargetPlans {
 public:
  // Keeps references to both. Every new and every better plan goes to `progress`, except stops.
  TargetPlans(const plan::Planner& planner, Progress& progress, Progress::Stage stage)
      : planner_(planner), progress_(progress), stage_(stage) {}

  // Makes a first plan for each of these targets that has none yet. Keeps a reference to the
  // frontier. Fails with the error of the first target that cannot be met, except a stop (under a
  // switch latency).
  Result<void> LookFirst(const plan::Frontier* frontier, const std::vector<WantedTarget>& wanted,
                         const std::stop_token& stop);

  // Improves all plans, up to this effort; or only the plan with this slug.
  Result<void> Improve(const plan::SearchLimits& limits, std::string_view only = {});

  // Returns the plans, in the order of `wanted` of the last LookFirst. Each is the best one that
  // its target may take (MayTake): a plan for a tighter deadline may be the plan for a looser one.
  // Leaves out a stop whose plan is the same as an earlier one.
  std::vector<PlannedTarget> Best() const;

 private:
  struct Entry {
    WantedTarget wanted;
    std::string slug;
    plan::TargetSearch search;
    Result<plan::Plan> plan;
    bool is_tried = false;
  };
  Result<void> Advance(const std::vector<Entry*>& entries, const plan::SearchLimits& limits);

  const plan::Planner& planner_;
  Progress& progress_;
  const Progress::Stage stage_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace perseus::recipe
