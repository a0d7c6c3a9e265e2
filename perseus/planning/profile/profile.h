// A profile has the measured options of every (pp_rank, chunk, instruction kind): the time and the
// energy of one such instruction at each clock.
//
// The column `stage` is the pp_rank. If each pp_rank holds one stage, the numbers are the same.
// With an interleaved schedule, a stage of the schedule is a pp_rank and a chunk here.
//
// The file is CSV (RFC 4180 quoting, UTF-8 with or without BOM, LF or CRLF):
//   stage,instruction,frequency,time,energy        frequency in MHz, time in s, energy in J
//
// Optional columns:
//   chunk                          which of the pp_rank's stages, for interleaved schedules; 0 if
//                                  absent
//   rank, dp_rank, pp_rank, tp_rank
//                                  the rank that measured the row; `pp_rank` may replace `stage`
//   samples                        the number of instructions that a row is the mean of
//   time_ci, energy_ci             half-widths of the 95 % confidence intervals of time (s) and
//                                  energy (J)
//   noise, common_noise            how much times vary (time_noise.h)
//   activation_bytes, model_bytes, memory_source
//                                  the memory of a stage (stage_memory.h)
//   blocking_power                 what a waiting GPU of this stage draws (W)
// In all other columns of this list, an empty field means that the value is unknown.
//
// Any other column is another knob: a number that a user chooses, like the frequency, such as
// `sm_count`, or a text, if no field of the column is a number (KnobLabels). If frequencies repeat
// but a column differs on nearly every row, this is an error. The column is probably a measurement
// (a power, a temperature) or a row number.
//
// Repeated measurements of one option are averaged. They have the same pp_rank, chunk, kind and
// knobs, and come from several rows or several ranks. The weight of a row is its samples. If
// repeats differ too much to be measurements of the same option, this is an error. The confidence
// interval of an average is computed as for a mean of independent measurements. If rows differ by
// more than their intervals allow (two GPUs are never exactly alike), the interval is multiplied by
// the Birge ratio: the square root of chi-squared divided by its degrees of freedom (Birge, Phys.
// Rev. 40, 207, 1932). If any row of an option has no interval, its average has none.
//
// Thread safety: Profile does not change after construction, so several threads may read it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/profile/stage_memory.h"
#include "perseus/planning/profile/time_noise.h"

namespace perseus::profile {

// One way to run an instruction.
struct Option {
  int frequency_mhz = 0;
  std::vector<double> other_knobs;  // One value for each of Profile::other_knob_names().
  Nanoseconds time = 0;             // > 0.
  double energy_j = 0;              // > 0; of one GPU.
  int samples = 1;                  // The number of averaged instructions, or of rows.
  double time_ci_s = 0;             // Half-width of the 95 % confidence interval; 0 if unknown.
  double energy_ci_j = 0;           // The same; of one GPU.

  bool SameKnobs(const Option& other) const {
    return frequency_mhz == other.frequency_mhz && other_knobs == other.other_knobs;
  }
};

struct ProfileEntry {
  int pp_rank = 0;
  int chunk = 0;
  InstructionKind kind = InstructionKind::kForward;
  std::vector<Option> options;  // Highest frequency first, then by other knobs.
};

// [knob] The texts of a knob whose values are texts: the value i stands for the text i. Empty for a
// knob whose values are numbers.
using KnobLabels = std::vector<std::vector<std::string>>;

// The text of a value, as a profile writes it.
std::string KnobText(const KnobLabels& labels, std::size_t knob, double value);

class Profile {
 public:
  // Takes the entries in any order. Requires each (pp_rank, chunk, kind) at most once, and at least
  // one option in each entry.
  Profile(std::string name, std::vector<std::string> other_knob_names,
          std::vector<ProfileEntry> entries);

  const std::string& name() const { return name_; }  // For messages; usually the file's path.
  const std::vector<std::string>& other_knob_names() const { return other_knob_names_; }
  // One element for each of other_knob_names().
  const KnobLabels& knob_labels() const { return knob_labels_; }
  void set_knob_labels(KnobLabels labels) { knob_labels_ = std::move(labels); }
  // The entries, sorted by pp_rank, chunk and kind.
  std::span<const ProfileEntry> entries() const { return entries_; }

  int pp_ranks() const;  // The largest pp_rank + 1.
  int chunks() const;    // The largest chunk + 1.

  // Absent if the profile states no noise, or states 0.
  const std::optional<TimeNoise>& noise() const { return noise_; }
  void set_noise(const TimeNoise& noise) { noise_ = noise; }
  // A warning about measurements of one option that differ much. Empty without such measurements.
  const std::string& doubt() const { return doubt_; }
  void set_doubt(std::string doubt) { doubt_ = std::move(doubt); }
  // Absent if the profile states no bytes.
  const std::optional<StageMemory>& memory() const { return memory_; }
  void set_memory(std::optional<StageMemory> memory) { memory_ = std::move(memory); }

  // [pp_rank] What a waiting GPU draws, in W. Empty if the profile does not say.
  const std::vector<double>& blocking_powers_w() const { return blocking_powers_w_; }
  void set_blocking_powers_w(std::vector<double> powers) { blocking_powers_w_ = std::move(powers); }
  std::optional<double> mean_blocking_power_w() const;

  // The options of this instruction, or null if the profile has none.
  const ProfileEntry* Find(int pp_rank, int chunk, InstructionKind kind) const;

 private:
  std::string name_;
  std::vector<std::string> other_knob_names_;
  KnobLabels knob_labels_;
  std::vector<ProfileEntry> entries_;
  std::optional<TimeNoise> noise_;
  std::string doubt_;
  std::optional<StageMemory> memory_;
  std::vector<double> blocking_powers_w_;
};

enum class ProfileRows {
  kStages,
  // The format of layer_profile.h: `layer` instead of `stage`, and no chunk, pp_rank, confidence or
  // further knob.
  kLayers,
};

struct ProfileReadOptions {
  ProfileRows rows = ProfileRows::kStages;
  // Two measurements of the same option may differ by at most this factor in time and in energy.
  // Noise does not explain a larger difference, so it is an error.
  double largest_repeat_ratio = 1.5;
};

// Parses the CSV `text` in one pass, with its noise and memory. `name` is the name of the file in
// messages. Errors (kInput) are one line, "name:line: cause (remedy)". Ten million rows take
// seconds. Memory is proportional to the number of distinct options.
Result<Profile> ParseProfile(std::string_view text, std::string_view name,
                             const ProfileReadOptions& options = {});

// Writes the same format, one row for each option. ParseProfile restores every nanosecond and every
// bit of the energies. If an entry has a chunk above 0, the columns `pp_rank` and `chunk` replace
// `stage`. The columns of confidence intervals are written only if an option has an interval.
std::string FormatProfile(const Profile& profile);

// As above, and adds the two columns of noise. Each row has the same noise.
std::string FormatProfile(const Profile& profile, const TimeNoise& noise);

}  // namespace perseus::profile
