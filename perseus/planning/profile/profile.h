// A profile: for every (stage, chunk, instruction kind) the measured options, that is, what one
// such instruction takes (time) and costs (energy) at each clock.
//
// File format (CSV, RFC 4180 quoting, UTF-8 with or without BOM, LF or CRLF):
//   stage,instruction,frequency,time,energy        frequency in MHz, time in s, energy in J
// Optional columns: `chunk` (interleaved schedules; 0 where absent) and `rank`, `dp_rank`,
// `pp_rank`, `tp_rank` (who measured it; `pp_rank` may stand for `stage`). Any further column is a
// further knob: a number that, like the frequency, is chosen (`sm_count`, say). One that differs on
// nearly every row, though frequencies repeat, was measured instead (a power, a temperature), or is
// a row's number: that is an error.
//
// Confidence, optional too: `samples` (how many instructions a row is the mean of), `time_ci` and
// `energy_ci` (half-widths of the 95 % confidence intervals of time, in s, and energy, in J). An
// empty field says nothing. They are no knobs.
//
// Repeated measurements of one option (same stage, chunk, kind and knobs: several rows, several
// ranks) are averaged, each row weighing as much as it has samples. Repeats that cannot be
// measurements of the same thing are an error. The interval of an average is that of a mean of
// independent measurements; where rows differ by more than their intervals say (two GPUs are not
// quite alike), it is widened by the Birge ratio, the root of chi-squared over its degrees of
// freedom (Birge, Phys. Rev. 40, 207, 1932). If a row of an option has no interval, its average has
// none.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"

namespace perseus::profile {

// One way to run an instruction.
struct Option {
  double frequency_mhz = 0;
  std::vector<double> other_knobs;  // One value per Profile::other_knob_names().
  Nanoseconds time = 0;             // > 0.
  double energy_j = 0;              // > 0; of one GPU.
  int samples = 1;                  // How many instructions, or rows, were averaged.
  double time_ci_s = 0;             // Half-width of the 95 % confidence interval; 0: not told.
  double energy_ci_j = 0;           // The same; of one GPU.

  bool SameKnobs(const Option& other) const {
    return frequency_mhz == other.frequency_mhz && other_knobs == other.other_knobs;
  }
};

struct ProfileEntry {
  int stage = 0;
  int chunk = 0;
  InstructionKind kind = InstructionKind::kForward;
  std::vector<Option> options;  // Highest frequency first, then by other knobs.
};

class Profile {
 public:
  // Takes entries in any order. Requires: each key once, each entry with at least one option.
  Profile(std::string name, std::vector<std::string> other_knob_names,
          std::vector<ProfileEntry> entries);

  const std::string& name() const { return name_; }  // For messages; usually the file's path.
  const std::vector<std::string>& other_knob_names() const { return other_knob_names_; }
  std::span<const ProfileEntry> entries() const { return entries_; }  // By stage, chunk, kind.
  int stages() const;  // One more than the largest stage.
  int chunks() const;  // One more than the largest chunk.

  // The options of that instruction, or null where the profile lacks it.
  const ProfileEntry* Find(int stage, int chunk, InstructionKind kind) const;

 private:
  std::string name_;
  std::vector<std::string> other_knob_names_;
  std::vector<ProfileEntry> entries_;
};

enum class ProfileRows {
  kStages,
  // `layer` in place of `stage`, and no chunk, pp_rank or further knob: what layer_profile.h reads.
  kLayers,
};

struct ProfileReadOptions {
  ProfileRows rows = ProfileRows::kStages;
  // Two measurements of the same option may differ by this factor in time or energy before they
  // are taken for a mistake rather than noise.
  double largest_repeat_ratio = 1.5;
};

// Parses CSV `text`; `name` stands for the file in messages. Errors (kInput) are one line,
// "name:line: cause (remedy)". Ten million rows are read in seconds, in memory proportional to the
// number of distinct options.
Result<Profile> ParseProfile(std::string_view text, std::string_view name,
                             const ProfileReadOptions& options = {});

// The same format back: one row per option, round-trip exact to the nanosecond and the last bit of
// the energy. `chunk` is written only if some entry has one; the columns of confidence, only if
// some option has an interval.
std::string FormatProfile(const Profile& profile);

}  // namespace perseus::profile
