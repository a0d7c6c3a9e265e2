// The lists of clocks that other tools of the field write and read: `freqs_pipeline_00042.py`.
//
// The solver of lowtime writes one such file for each point of its frontier, and Zeus's pipeline
// frequency optimizer reads one. A file is a Python list with one list for each pp_rank. Each inner
// list has one entry for each computation of the pp_rank, in execution order:
//
//     [
//     [('forward', 1410), ('forward', 1395), ('backward', 1200)],
//     [('forward', 1350), ('backward', 1410), ...],
//     ]
//     # Iteration 42 cost change: ...
//
// Older files have bare frequencies instead of pairs: [1410, 1395, 1200]. Those tools run the file
// as a program. Here it is data: lists, tuples, strings, numbers and comments, at exactly these
// depths. Anything else is an error with its line.
//
// The format cannot express times, energies or other knobs, and no fixed instructions, which are
// left out. The job has to supply what the file does not say.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/planning/schedule/instruction_graph.h"

namespace perseus::plan_file {

struct ListedFrequency {
  std::optional<InstructionKind> kind;  // Absent in the older form.
  double frequency_mhz = 0;
  int line = 0;
};

struct FrequencyLists {
  std::vector<std::vector<ListedFrequency>> pp_ranks;  // [pp_rank][position]
};

// What FormatFrequencyLists writes.
struct ListedPlan {
  std::span<const int> options;  // [instruction] an index into its option set.
  std::string_view target;       // In words.
  Nanoseconds time = 0;          // Of the iteration.
  double energy_j = 0;           // Of one pipeline.
};

// Errors (kInput) are one line, "name:line: cause (remedy)".
Result<FrequencyLists> ParseFrequencyLists(std::string_view text, std::string_view name);

// Fails (kInput) if the graph has other knobs than the frequency, because lists cannot have them.
Result<void> CheckListable(const schedule::InstructionGraph& graph);

// Writes the newer form, with the target, time and energy as comments at the end. Fails (kInput) if
// CheckListable fails, or if a frequency is not a whole number of MHz, because other tools do not
// accept that.
Result<std::string> FormatFrequencyLists(const schedule::InstructionGraph& graph,
                                         const ListedPlan& plan);

// The options that the lists name, one for each instruction of `graph`. Fails (kInput) if the lists
// do not fit the pp_ranks of the graph, or have a frequency that was not measured.
Result<std::vector<int>> FindOptions(const FrequencyLists& lists,
                                     const schedule::InstructionGraph& graph,
                                     std::string_view name);

}  // namespace perseus::plan_file
