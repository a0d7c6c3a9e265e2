#include "perseus/runtime/client/step_recorder.h"

#include <algorithm>
#include <utility>

namespace perseus::client {
namespace {

// The most entries that are kept while no step ends.
constexpr std::size_t kMostEnergy = 4096;
constexpr std::size_t kMostReached = 4096;
constexpr std::size_t kMostChanges = 4096;
// The most instructions and waits of a step. A step that never ends must not fill the memory.
constexpr std::size_t kMostParts = 16'384;
// Two events on a stream differ by some microseconds, even if the GPU does not wait between them.
constexpr Nanoseconds kShortestWait = 10'000;
// A driver call that takes longer is treated as unanswered.
constexpr Nanoseconds kLongestAnswer = 100'000'000;

}  // namespace

void StepRecorder::Add(const Event& event) {
  if (event.type == Event::Type::kStepBegin) {
    Pending& pending = steps_.emplace_back();
    pending.step.step = event.step;
    pending.step.assignment_version = event.version;
    pending.is_wanted = event.is_recorded;
    pending.step.begin = event.begin;
    return;
  }
  if (steps_.empty() || steps_.back().has_ended) return;
  Pending& pending = steps_.back();
  if (event.type == Event::Type::kStepEnd) {
    pending.step.end = std::max(pending.step.end, event.begin);
    pending.step.has_plan = event.has_plan;
    pending.step.on_plan = event.on_plan;
    // A step with missing instructions would look like another schedule.
    pending.is_wanted = pending.is_wanted && event.is_whole;
    pending.has_ended = true;
    return;
  }
  const bool is_on_stream =
      event.type == Event::Type::kStreamInstruction || event.type == Event::Type::kStreamWait;
  if (pending.parts.size() >= kMostParts) {
    pending.is_wanted = false;
    // Pairs of events are kept, because they still have to be released. They are few.
    if (!is_on_stream) return;
  }
  const int timing = is_on_stream ? event.timing : -1;
  if (event.type == Event::Type::kWait || event.type == Event::Type::kStreamWait) {
    pending.parts.push_back({timing, /*is_wait=*/true, pending.step.waits.size()});
    pending.step.waits.push_back({event.begin - pending.step.begin, event.end - event.begin});
    return;
  }
  pending.parts.push_back({timing, /*is_wait=*/false, pending.step.instructions.size()});
  protocol::RanInstruction instruction;
  instruction.kind = event.what.kind;
  instruction.microbatch = event.what.microbatch;
  instruction.chunk = event.what.chunk;
  instruction.begin = event.begin - pending.step.begin;
  instruction.duration = event.end - event.begin;
  instruction.frequency_mhz = event.frequency_mhz;
  pending.step.instructions.push_back(instruction);
}

void StepRecorder::Add(const EnergyReading& reading) {
  energy_.push_back(reading);
  if (energy_.size() > kMostEnergy) energy_.pop_front();
}

void StepRecorder::Add(const ClockReading& reading) {
  reached_.push_back(reading);
  if (reached_.size() > kMostReached) reached_.pop_front();
}

void StepRecorder::Add(const PublishedClock& published) {
  changes_.push_back({published, {}});
  if (changes_.size() > kMostChanges) changes_.pop_front();
}

void StepRecorder::Add(const protocol::ClockAnswer& answer) {
  if (answer.sequence == 0) return;
  if (answer.outcome == protocol::ClockOutcome::kAtPowerLimit) {
    limits_.Add(device::ClockLimit::kPowerCap);
  }
  is_limited_ |= answer.outcome == protocol::ClockOutcome::kLimited;
  const auto found = std::find_if(
      changes_.rbegin(), changes_.rend(),
      [&answer](const Change& change) { return change.published.sequence == answer.sequence; });
  if (found != changes_.rend()) found->answer = answer;
}

void StepRecorder::SetState(const device::Telemetry& telemetry) {
  telemetry_ = telemetry;
  limits_.bits |= telemetry.limits.bits;
}

bool StepRecorder::ResolveTimes(Pending& pending, const StreamTimesOf& stream_times) {
  for (; pending.untimed < pending.parts.size(); ++pending.untimed) {
    const Part& part = pending.parts[pending.untimed];
    if (part.timing < 0) continue;
    const StreamTiming times = stream_times(part.timing);
    if (times.state == StreamTiming::State::kPending) return false;
    if (times.state == StreamTiming::State::kLost) {
      if (std::exchange(pending.is_wanted, false)) pending.is_lost = true;
      continue;
    }
    const Nanoseconds begin = times.begin - pending.step.begin;
    const Nanoseconds duration = std::max<Nanoseconds>(times.end - times.begin, 0);
    if (part.is_wait) {
      pending.step.waits[part.index] = {begin, duration};
      continue;
    }
    protocol::RanInstruction& instruction = pending.step.instructions[part.index];
    instruction.begin = begin;
    instruction.duration = duration;
    // The training thread is ahead of the stream: the step lasts until its work is done.
    pending.step.end = std::max(pending.step.end, times.end);
    pending.is_on_stream = true;
  }
  return true;
}

bool StepRecorder::IsAnswered(Nanoseconds until) const {
  const auto later = std::find_if(changes_.begin(), changes_.end(), [until](const Change& change) {
    return change.published.requested > until;
  });
  // Later requests replaced the earlier ones, which get no answer any more.
  return later == changes_.begin() || std::prev(later)->answer.sequence != 0;
}

void StepRecorder::Complete(protocol::RanStep& step) {
  std::erase_if(step.waits, [](const protocol::Wait& one) { return one.duration < kShortestWait; });
  while (!energy_.empty() && energy_.front().until <= step.end) {
    const EnergyReading& reading = energy_.front();
    step.energy.push_back(
        {reading.after - step.begin, reading.until - step.begin, reading.energy_j});
    energy_.pop_front();
  }
  for (; !reached_.empty() && reached_.front().at <= step.end; reached_.pop_front()) {
    const ClockReading& reading = reached_.front();
    if (reading.at >= step.begin) {
      step.reached.push_back({reading.at - step.begin, reading.sm_clock_mhz});
    }
  }
  while (!changes_.empty() && changes_.front().published.requested <= step.end) {
    const auto& [published, answer] = changes_.front();
    protocol::ClockChange change;
    change.requested = published.requested - step.begin;
    if (answer.sequence != 0) change.applied = answer.applied_at - step.begin;
    change.frequency_mhz = published.frequency_mhz;
    change.outcome = static_cast<int>(answer.outcome);
    step.clocks.push_back(change);
    changes_.pop_front();
  }
  step.temperature_c = telemetry_.temperature_c;
  step.power_w = telemetry_.power_w;
  device::ClockLimits limits = std::exchange(limits_, telemetry_.limits);
  // The readings of this process do not show the cause, such as the lock of another program.
  const bool is_unexplained = !device::IsHeldDown(limits) || device::IsAtPowerLimit(limits);
  if (std::exchange(is_limited_, false) && is_unexplained) limits.Add(device::ClockLimit::kOther);
  step.limited_by = device::NamesOfHoldingDown(limits);
  step.is_limited = !step.limited_by.empty();
}

std::vector<protocol::RanStep> StepRecorder::TakeFinished(Nanoseconds now,
                                                          const StreamTimesOf& stream_times) {
  std::vector<protocol::RanStep> finished;
  while (!steps_.empty()) {
    Pending& pending = steps_.front();
    // A long step gives pairs of events back before it ends.
    const bool is_resolved = ResolveTimes(pending, stream_times);
    if (!is_resolved || !pending.has_ended) break;
    // The call of step_begin may be steps ahead of the GPU.
    if (pending.is_on_stream) protocol::BeginWithFirstInstruction(pending.step);
    const Nanoseconds end = pending.step.end;
    if (!IsAnswered(end) && now < end + kLongestAnswer) break;
    Complete(pending.step);
    last_end_ = end;
    if (pending.is_lost) ++lost_steps_;
    if (pending.is_wanted) finished.push_back(std::move(pending.step));
    steps_.pop_front();
  }
  return finished;
}

std::int64_t StepRecorder::UnknownSteps() const {
  return lost_steps_ + std::count_if(steps_.begin(), steps_.end(), [](const Pending& pending) {
           return pending.has_ended && pending.is_wanted;
         });
}

}  // namespace perseus::client
