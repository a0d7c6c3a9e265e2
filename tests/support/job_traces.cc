#include "tests/support/job_traces.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

namespace perseus {
namespace {

int LaneOf(std::string_view name) {
  if (name.ends_with("-send") || name.ends_with("-recv")) return 1;
  if (name.ends_with("-compute") || name == "optimizer" || name == "gc") return 0;
  return 2;
}

constexpr const char* kLaneNames[] = {"compute", "pp-comm", "dp-comm"};
constexpr int kLanes = 3;

// One step of the trace of TwoPipelines().
class Step {
 public:
  Step(const TimelineSpec& spec, int number, double begin_ms)
      : waits_are_recorded_(spec.waits_are_recorded), number_(number), begin_ms_(begin_ms) {}

  void Pipeline(int p, double slowness) {
    const double f = 10 * slowness;  // The times of rank 1. Rank 0 takes 10 and 20.
    const double b = 20 * slowness;
    const double second = 11 + f + b;  // At this time, rank 1 has finished its first microbatch.
    const double third = second + 1 + f + b;
    Compute("forward", p, 0, 0, 0, 10);
    Transfer("forward", p, 0, 10, 0, 10);
    Compute("forward", p, 0, 1, 11, 21);
    Compute("forward", p, 1, 0, 11, 11 + f);
    Compute("backward", p, 1, 0, 11 + f, second);
    Transfer("forward", p, 0, 21, second, second);
    Transfer("backward", p, 1, second, 21, second);
    Compute("forward", p, 1, 1, second + 1, second + 1 + f);
    Compute("backward", p, 0, 0, second + 1, second + 21);
    Compute("backward", p, 1, 1, second + 1 + f, third);
    const double meet = std::max(third, second + 21);
    Transfer("backward", p, 1, third, second + 21, meet);
    Compute("backward", p, 0, 1, meet + 1, meet + 21);
    done_[p][0] = meet + 21;
    done_[p][1] = meet + 1;
  }

  void Collectives() {
    double clip = 0;
    double scattered[2] = {0, 0};
    for (int r = 0; r < 2; ++r) {
      const double start = std::max(done_[0][r], done_[1][r]);
      scattered[r] = start + 5;
      for (int p = 0; p < 2; ++p) {
        Add("grads-reduce-scatter", p, r, waits_are_recorded_ ? done_[p][r] : start, start + 5, -1);
      }
      clip = std::max(clip, start + 5);
    }
    for (int p = 0; p < 2; ++p) {
      for (int r = 0; r < 2; ++r) {
        Add("optimizer-clip-main-grad", p, r, waits_are_recorded_ ? scattered[r] : clip, clip + 1,
            -1);
        Add("optimizer", p, r, clip + 1, clip + 3, -1);
      }
    }
    end_ms_ = begin_ms_ + clip + 3;
  }

  double end_ms() const { return end_ms_; }
  const std::vector<TracedEvent>& events() const { return events_; }

 private:
  void Add(const std::string& name, int p, int r, double start, double end, int microbatch) {
    events_.push_back({name, p, r, number_, begin_ms_ + start, begin_ms_ + end, microbatch});
  }
  void Compute(const char* direction, int p, int r, int microbatch, double start, double end) {
    Add(fmt::format("{}-compute", direction), p, r, start, end, microbatch);
  }
  // Adds a transfer from `sender` to the other rank. `sender_ms` and `receiver_ms` are the times at
  // which each of them is ready. Both continue 1 ms after `meet`.
  void Transfer(const char* direction, int p, int sender, double sender_ms, double receiver_ms,
                double meet) {
    Add(fmt::format("{}-send", direction), p, sender, waits_are_recorded_ ? sender_ms : meet,
        meet + 1, -1);
    Add(fmt::format("{}-recv", direction), p, 1 - sender, waits_are_recorded_ ? receiver_ms : meet,
        meet + 1, -1);
  }

  bool waits_are_recorded_;
  int number_;
  double begin_ms_;
  double end_ms_ = 0;
  double done_[2][2] = {};
  std::vector<TracedEvent> events_;
};

}  // namespace

std::string FormatTimeline(const std::vector<TracedEvent>& events) {
  std::map<std::tuple<std::string, int, int, int>, int> sequence;
  std::map<std::pair<int, int>, std::string> lanes;  // (pid, tid) -> name.
  std::string text = "[";
  for (const TracedEvent& event : events) {
    const int lane = LaneOf(event.name);
    const int tid = 100 * event.dp_rank + kLanes * event.pp_rank + lane;
    lanes[{event.dp_rank, tid}] =
        fmt::format("PP rank {}, TP rank 0, {}", event.pp_rank, kLaneNames[lane]);
    text += fmt::format(
        R"({{"name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"ph":"X",)"
        R"("args":{{"step":{},"model_chunk":{},"mb_id":{},"seq_id":{}}}}},)"
        "\n",
        event.name, event.name, event.dp_rank, tid, event.start_ms * 1e3,
        (event.end_ms - event.start_ms) * 1e3, event.step, event.microbatch < 0 ? -1 : 0,
        event.microbatch, sequence[{event.name, event.dp_rank, event.pp_rank, event.step}]++);
  }
  for (const auto& [thread, name] : lanes) {
    text +=
        fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}},)"
                    "\n",
                    thread.first, thread.second, name);
  }
  if (text.ends_with(",\n")) text.resize(text.size() - 2);
  return text + "]\n";
}

std::vector<TracedEvent> TwoPipelines(const TimelineSpec& spec) {
  std::vector<TracedEvent> events;
  double begin_ms = 0;
  for (int s = 0; s < spec.steps; ++s) {
    const std::size_t known = std::min(static_cast<std::size_t>(s), spec.slowness.size() - 1);
    // The gc events that begin the step are on time. Everything after these events is late.
    if (spec.late_ms > 0) {
      for (int i = 0; i < 4; ++i) {
        events.push_back({"gc", i / 2, i % 2, spec.first_step + s, begin_ms, begin_ms + 1, -1});
      }
      begin_ms += 1 + spec.late_ms;
    }
    Step step(spec, spec.first_step + s, begin_ms);
    step.Pipeline(0, 1);
    step.Pipeline(1, spec.slowness[known]);
    step.Collectives();
    events.insert(events.end(), step.events().begin(), step.events().end());
    begin_ms = step.end_ms() + 3;
  }
  return events;
}

}  // namespace perseus
