// What planning tells while it runs.
//
// Thread safety: planning calls all methods from several threads.
#pragma once

#include <string>
#include <string_view>

#include "perseus/planning/plan/planner.h"

namespace perseus::recipe {

class Progress {
 public:
  // A plan of this stage may still get a limit of clock changes, which changes it.
  enum class Stage { kBeforeLimit, kFinal };

  virtual ~Progress() = default;
  // The activity that begins now, and its completed fraction.
  virtual void Begin(const std::string& /*activity*/) {}
  virtual void Update(double /*fraction*/) {}
  // The best plan so far for a target, in words.
  virtual void Show(std::string_view /*target*/, const plan::Plan& /*plan*/, Stage /*stage*/) {}
};

}  // namespace perseus::recipe
