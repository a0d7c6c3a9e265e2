// The lists of clocks that other tools of the field write and read: `freqs_pipeline_00042.py`.
//
// lowtime's solver writes one such file for each point of its frontier, and Zeus's pipeline
// frequency optimizer plays one back. A file is a Python list with a list for each rank, which has
// an entry for each computation of the rank in execution order:
//
//     [
//     [('forward', 1410), ('forward', 1395), ('backward', 1200)],
//     [('forward', 1350), ('backward', 1410), ...],
//     ]
//     # Iteration 42 cost change: ...
//
// Older files have bare frequencies in place of the pairs: [1410, 1395, 1200]. Those tools evaluate
// the file as a program. Here it is data: lists, tuples, strings, numbers and comments, at just
// these depths; anything else is an error with its line.
//
// The form has no place for times, energies or other knobs, nor for fixed instructions, which are
// left out. What it does not say, the job has to.
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
  std::vector<std::vector<ListedFrequency>> ranks;
};

// What FormatFrequencyLists writes.
struct ListedPlan {
  std::span<const int> options;  // Per instruction, an index into its option set.
  std::string_view target;       // In words.
  Nanoseconds time = 0;          // Of the iteration.
  double energy_j = 0;           // Of one pipeline.
};

// Errors (kInput) are one line, "name:line: cause (remedy)".
Result<FrequencyLists> ParseFrequencyLists(std::string_view text, std::string_view name);

// Fails (kInput) if the graph has other knobs than the frequency, for which lists have no place.
Result<void> CheckListable(const schedule::InstructionGraph& graph);

// The newer form, with the target, time and energy as comments at the end. Fails (kInput) if the
// graph is not listable, or a frequency is no whole number of MHz, which the tools that read the
// form do not take.
Result<std::string> FormatFrequencyLists(const schedule::InstructionGraph& graph,
                                         const ListedPlan& plan);

// The options that the lists name, per instruction of `graph`. Fails (kInput) where the lists do
// not fit the graph's ranks, or name a frequency that was not measured.
Result<std::vector<int>> FindOptions(const FrequencyLists& lists,
                                     const schedule::InstructionGraph& graph,
                                     std::string_view name);

}  // namespace perseus::plan_file
