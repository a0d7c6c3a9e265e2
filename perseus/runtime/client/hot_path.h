// Follows the plan in each call of a training thread: finds the position in the plan and the next
// clock, and writes the entries of the record. It reads no time and requests no clock: the caller
// passes the time, and receives the wanted clock. ClockPrecedence decides which clocks a step
// follows.
//
// No call allocates memory, takes a lock or makes a system call.
//
// If the assignment has one clock for each kind, no plan contains the next instruction. Then this
// class expects the order of the previous step, because training repeats it. If another instruction
// begins, its clock is requested at its beginning.
//
// Thread safety: one thread at a time. Any thread may read the counters and call Follow.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "perseus/base/instruction_kind.h"
#include "perseus/base/units.h"
#include "perseus/runtime/client/clock_table.h"
#include "perseus/runtime/client/handover.h"
#include "perseus/runtime/client/ring.h"

namespace perseus::client {

struct Instruction {
  InstructionKind kind = InstructionKind::kForward;
  int microbatch = 0;
  int chunk = 0;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

// An entry of the record. The background thread reads it.
struct Event {
  enum class Type : std::uint8_t {
    kStepBegin,
    kInstruction,
    kStreamInstruction,
    kWait,  // Within the instruction that ends next.
    kStreamWait,
    kStepEnd
  };
  Type type = Type::kStepBegin;
  bool has_plan = false;  // kStepEnd: a plan was in force.
  bool on_plan = false;   // kStepEnd.
  bool is_whole = true;   // kStepEnd: training ran all of it, and no instruction was dropped.
  Instruction what;
  int frequency_mhz = 0;
  int timing = 0;         // kStream…: the pair of events that has its times.
  Nanoseconds begin = 0;  // CLOCK_MONOTONIC. kStepBegin and kStepEnd: the time of the call.
  Nanoseconds end = 0;
  std::int64_t step = 0;     // kStepBegin.
  std::int64_t version = 0;  // kStepBegin.
  bool is_recorded = true;   // kStepBegin: whether the rank log gets the step.
};

// Written by the training thread, read by any thread.
struct HotCounters {
  std::atomic<std::uint64_t> steps = 0;
  std::atomic<std::uint64_t> steps_off_plan = 0;
  std::atomic<std::uint64_t> steps_abandoned = 0;
  std::atomic<std::uint64_t> instructions = 0;
  std::atomic<std::uint64_t> records_dropped = 0;
  std::atomic<bool> is_last_abandoned = false;  // The last step was left before its end.
  std::atomic<bool> is_in_step = false;
  std::atomic<bool> follows_plan = false;
  std::atomic<bool> is_recorded = true;  // According to the assignment in force.
  std::atomic<std::int64_t> version = 0;
  std::atomic<double> slowdown = 1;
  std::atomic<Nanoseconds> last_step_end = 0;
  // The usual time from the end of a step to the begin of the next one: a running mean, without
  // what exceeds a second. 0: unknown.
  std::atomic<Nanoseconds> usual_gap = 0;
};

// Problems that the training thread found. The background thread turns them into warnings.
struct HotTrouble {
  // The first instruction that differed from the plan.
  std::atomic<bool> is_off_plan = false;
  std::int64_t step = 0;
  std::size_t position = 0;   // Where in the step the instruction is.
  bool has_expected = false;  // If false, the plan had no further instruction.
  Instruction expected;
  bool has_got = false;  // If false, the step ended.
  Instruction got;

  std::atomic<bool> has_expired = false;
  std::atomic<bool> is_full = false;  // Whether the ring of events was full.
  std::atomic<bool> is_bad_kind = false;
  // Whether an instruction without a stream began in a thread that computes on a GPU with CUDA.
  std::atomic<bool> lacks_stream = false;
};

class HotPath {
 public:
  // No clock to request.
  static constexpr int kNoChange = -1;

  HotPath(Ring<Event>& events, Handover<ClockTable>& tables, HotCounters& counters,
          HotTrouble& trouble);
  HotPath(const HotPath&) = delete;
  HotPath& operator=(const HotPath&) = delete;

  // The number of the next step. Call it before the first step.
  void BeginAt(std::int64_t step) { next_step_ = step; }

  // Each returns the wanted clock in MHz from now on (0: the default clock), or kNoChange.
  int StepBegin(Nanoseconds now);
  int StepEnd(Nanoseconds now);
  // Ends a step that training left before its end. The step is not recorded.
  int StepAbandon(Nanoseconds now);
  int InstructionBegin(const Instruction& what, Nanoseconds now);
  // The clock that was requested when the instruction began, for the record.
  void SetFrequency(int frequency_mhz) { frequency_mhz_ = frequency_mhz; }
  int InstructionEnd(Nanoseconds now);
  // For work on a stream: `timing` is the pair of events that has the times, or kNoTimes.
  struct Ended {
    int wanted = kNoChange;
    Nanoseconds lead = 0;   // How long before the end of the instruction.
    bool is_taken = false;  // The pair is in the record. The background thread releases it.
  };
  Ended InstructionEndOn(int timing);
  static constexpr int kNoTimes = -1;
  // Records a part of the running instruction in which the GPU waited for other ranks.
  void AddWait(Nanoseconds begin, Nanoseconds end);
  // The same on a stream. Returns whether the pair is in the record.
  bool AddWaitOn(int timing);

  // Sets the session's own plan, from the next step on. Not for the hot path: it frees memory.
  void Follow(std::unique_ptr<ClockTable> table) { clocks_.SetOwn(std::move(table)); }

  bool is_in_instruction() const { return is_in_instruction_; }

  // When the running instruction is about to end, so that the first clock of the next step has to
  // be requested (ClockTable::lead), and that clock. at: 0: never.
  struct Return {
    Nanoseconds at = 0;
    int frequency_mhz = 0;
  };
  Return ReturnOfClock() const;

 private:
  static constexpr std::size_t kLongestLearned = 16'384;  // Instructions of a step.

  void ChooseClocks(Nanoseconds now);
  void LearnGap(Nanoseconds now);
  void LeavePlan(const Instruction* expected, const Instruction* got);
  int ClockAt(std::size_t position) const;
  int FirstClock() const;
  int ClockOfNext() const;
  bool IsLast(std::size_t position) const;
  bool IsFollowingPlan() const { return Uses(ClockTable::Source::kPlan) && !is_off_plan_; }
  bool Uses(ClockTable::Source source) const {
    return clocks_.table() != nullptr && clocks_.table()->source == source;
  }
  bool Record(const Event& event);
  void Drop();
  void FinishStep(Nanoseconds now);
  Ended EndInstruction(Event event);

  Ring<Event>& events_;
  HotCounters& counters_;
  HotTrouble& trouble_;

  ClockPrecedence clocks_;
  std::int64_t next_step_ = 0;
  bool is_in_step_ = false;
  bool is_recorded_ = false;  // Whether the ring had room for this step.
  bool is_whole_ = true;      // Whether no entry of this step was dropped.
  bool is_off_plan_ = false;
  bool had_instruction_ = true;  // In the previous step.
  std::size_t position_ = 0;     // Instructions of this step that have ended.
  bool is_in_instruction_ = false;
  Instruction what_;
  Nanoseconds began_ = 0;
  int frequency_mhz_ = 0;

  // The order of this step so far. It overwrites the order of the previous step.
  std::vector<Instruction> learned_;
  std::size_t learned_size_ = 0;
};

}  // namespace perseus::client
