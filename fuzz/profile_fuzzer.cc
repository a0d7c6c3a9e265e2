// Checks that no bytes crash the reader of profiles. An accepted profile must be the same after it
// is written and read again, and must give curves.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "perseus/planning/profile/curve.h"
#include "perseus/planning/profile/profile.h"

namespace {

using perseus::fuzz::Require;
using perseus::fuzz::RequireOneLine;

// Only `samples` may differ after formatting, because averaged rows become one row.
bool Same(const perseus::profile::ProfileEntry& a, const perseus::profile::ProfileEntry& b) {
  if (a.pp_rank != b.pp_rank || a.chunk != b.chunk || a.kind != b.kind) return false;
  if (a.options.size() != b.options.size()) return false;
  for (std::size_t i = 0; i < a.options.size(); ++i) {
    const perseus::profile::Option& x = a.options[i];
    const perseus::profile::Option& y = b.options[i];
    if (!x.SameKnobs(y) || x.time != y.time || x.energy_j != y.energy_j) return false;
  }
  return true;
}

bool Same(const perseus::profile::Profile& a, const perseus::profile::Profile& b) {
  if (a.other_knob_names() != b.other_knob_names()) return false;
  if (a.entries().size() != b.entries().size()) return false;
  for (std::size_t i = 0; i < a.entries().size(); ++i) {
    if (!Same(a.entries()[i], b.entries()[i])) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const perseus::Result<perseus::profile::Profile> profile =
      perseus::profile::ParseProfile(text, "input");
  if (!profile) {
    RequireOneLine(profile.error());
    return 0;
  }
  const perseus::Result<perseus::profile::Profile> again =
      perseus::profile::ParseProfile(perseus::profile::FormatProfile(*profile), "input");
  Require(again && Same(*profile, *again));
  for (const perseus::profile::ProfileEntry& entry : profile->entries()) {
    if (perseus::profile::LowerHull(entry.options, 80))
      (void)perseus::profile::FitExponential(entry.options, 80);
  }
  return 0;
}
