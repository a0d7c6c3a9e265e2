// Chooses the targets to plan, and plans them without a limit on clock changes. Several plans are
// made at a time, one on each core.
//
// First, every target gets a plan of a short search, so that the user soon sees all rows. Then the
// searches continue, cycle by cycle, until the effort is used or the user asks to finish. No plan
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
// planning fails. Any other target is left out in this case.
//
// A better plan may replace only plans of targets of the same group or a later group. (The first
// three groups count as one, but a loose target gives no plan to others.) So the plans of asked
// targets do not depend on whether an interface shows a table.
enum class Group {
  kAsked,
  kLoose,  // Asked, and permits at least the time of least energy (TakePlanOfLeastEnergy).
  // No slowdown (decides a picked limit), least energy (the plan of targets with more time), and
  // candidates. Only if not asked.
  kReference,
  kTable,
  kStop,  // An additional slowdown for the slider of the report. Not printed as a row.
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
  bool is_asked() const { return group == Group::kAsked || group == Group::kLoose; }
};

// Whether a plan for a target of the group `from` may become the plan for a target of the group
// `to`.
bool MayTake(Group from, Group to);

// Whether a plan that was made for another target may be the best plan for an asked target. This is
// so for a price and for the energy-delay product. Then each interface also plans the table, as
// kReference.
bool NeedsCandidates(const std::vector<plan::Target>& asked);

// Whether an asked target permits more time than the baseline takes. Such a target may permit more
// time than least energy takes.
bool PermitsMoreTime(const plan::Planner& planner, const std::vector<plan::Target>& asked);

// Returns all targets to plan, in this order: no slowdown, larger slowdowns, least energy, and then
// the other asked targets. `least_energy_time` is the time of least energy, by the relaxation. If
// it is empty, returns only no slowdown and the asked targets. Without a table, least energy is
// planned only if an asked target permits about that much time. With a table, adds at most `stops`
// stops: slowdowns at even distances, below the slowdown of least energy.
enum class Table { kNo, kYes };
std::vector<WantedTarget> TargetsToPlan(const std::vector<plan::Target>& asked,
                                        const plan::Planner& planner,
                                        std::optional<Nanoseconds> least_energy_time, Table table,
                                        int stops);

// Gives the loose targets the plan of least energy, unless it is too slow for them. So they have
// the same plan, also in different runs: the results of a search for each of them would differ by
// 0.01 to 0.2 %, and more time could need more energy.
void TakePlanOfLeastEnergy(std::vector<PlannedTarget>& planned);

// The default number of stops: at most 10, and fewer for large jobs, so that planning does not take
// much longer. 0 for jobs with tens of thousands of instructions.
int DefaultStops(const schedule::InstructionGraph& graph);

// Plans several targets, with more and more effort.
class TargetPlans {
 public:
  // Keeps references to both. Reports every new and every better plan to `progress`, except stops.
  TargetPlans(const plan::Planner& planner, Progress& progress, Progress::Stage stage)
      : planner_(planner), progress_(progress), stage_(stage) {}

  // Makes a first plan for each of these targets that has no plan yet. Keeps a reference to the
  // frontier. Fails with the error of the first target that cannot be met, unless it is a stop
  // (which can happen with a switch latency).
  Result<void> LookFirst(const plan::Frontier* frontier, const std::vector<WantedTarget>& wanted,
                         const std::stop_token& stop);

  // Improves all plans up to this effort, or only the plan with the slug `only`.
  Result<void> Improve(const plan::SearchLimits& limits, std::string_view only = {});

  // Returns the plans, in the order of `wanted` of the last LookFirst. Each is the best plan that
  // its target may take (MayTake): a plan for a tighter deadline may be the plan for a looser one.
  // Leaves out a stop if its plan equals an earlier plan.
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
