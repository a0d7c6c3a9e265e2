// What planning reports while it runs.
//
// Thread safety: planning calls all methods from several threads.
#pragma once

#include <string>
#include <string_view>

#include "perseus/planning/plan/planner.h"

namespace perseus::recipe {

class Progress {
 public:
  // kBeforeLimit: the plan changes when its limit of clock changes is applied.
  enum class Stage { kBeforeLimit, kFinal };

  virtual ~Progress() = default;
  // Receives the activity that begins now, and then its completed fraction.
  virtual void Begin(const std::string& /*activity*/) {}
  virtual void Update(double /*fraction*/) {}
  // Receives the best plan so far. `target` describes its target.
  virtual void Show(std::string_view /*target*/, const plan::Plan& /*plan*/, Stage /*stage*/) {}
};

}  // namespace perseus::recipe
