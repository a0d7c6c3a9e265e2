// Writes timelines in the Trace Event Format (JSON), for https://ui.perfetto.dev or
// chrome://tracing: processes with lanes, slices of instructions, and counters.
//
// Not thread safe.
#pragma once

#include <string>
#include <string_view>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/units.h"

namespace perseus::plan_file {

// "F3" is the forward of microbatch 3. The letters are those of schedule files: F forward, B full
// backward, I dgrad, W wgrad, R recompute. Other kinds have their name: "load 3", or "optimizer" if
// the microbatch is -1.
std::string InstructionLabel(InstructionKind kind, int microbatch);

// Returns `text` as a JSON string. Replaces bytes that are not UTF-8: names come from files.
std::string QuotedForTrace(std::string_view text);

class TraceEvents {
 public:
  // The viewer sorts processes and lanes by their numbers.
  void NameProcess(int process, std::string_view name);
  void NameLane(int process, int lane, std::string_view name);

  struct Slice {
    int process = 0;
    int lane = 0;
    std::string_view name;
    InstructionKind kind = InstructionKind::kForward;
    Nanoseconds start = 0;
    Nanoseconds duration = 0;
  };
  // `arguments` are the members of a JSON object, such as "\"chunk\": 0, \"microbatch\": 3".
  void AddSlice(const Slice& slice, std::string_view arguments);

  // Sets the value of the counter from time `at` on. `value` is a JSON number, `unit` its name.
  void AddCounter(int process, std::string_view name, Nanoseconds at, std::string_view unit,
                  std::string_view value);

  // The complete file.
  std::string Finish() &&;

 private:
  void Add(std::string_view event);

  std::string events_;
};

}  // namespace perseus::plan_file
