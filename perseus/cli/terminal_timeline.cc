#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "perseus/cli/terminal_axis.h"
#include "perseus/cli/terminal_plot.h"
#include "perseus/planning/plan_file/option_lookup.h"

namespace perseus::cli {
namespace {

constexpr std::size_t kMostPpRanks = 16;
constexpr int kLongestLabel = 16;
constexpr int kNothing = -1;
// If the mean instruction takes fewer slots, a letter for each instruction would hide all clocks.
constexpr double kLeastSlots = 1.5;

// The groups of kinds that the drawing distinguishes.
enum class Activity { kForward, kBackward, kWeights, kRecompute, kOther };
constexpr std::size_t kActivities = 5;
struct ActivityLook {
  char32_t letter;
  Color color;
  const char* name;
};
constexpr ActivityLook kLooks[kActivities] = {{U'F', Color::kCyan, "forward"},
                                              {U'B', Color::kYellow, "backward"},
                                              {U'W', Color::kGreen, "weight gradient"},
                                              {U'R', Color::kMagenta, "recompute"},
                                              {U'O', Color::kDefault, "other instruction"}};

Activity ActivityOf(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kForward:
      return Activity::kForward;
    case InstructionKind::kBackward:
    case InstructionKind::kBackwardInput:
      return Activity::kBackward;
    case InstructionKind::kBackwardWeight:
      return Activity::kWeights;
    case InstructionKind::kRecompute:
      return Activity::kRecompute;
    default:
      return Activity::kOther;
  }
}

constexpr std::size_t kShades = 4;
struct TimelineSymbols {
  std::array<char32_t, kShades> shades;  // For the lowest clocks first.
  char32_t no_clock;                     // For an instruction without a clock.
  char32_t waiting;
  const char* to;  // The dash between two numbers.
};
constexpr TimelineSymbols kTimelineUnicodeSymbols{{U'░', U'▒', U'▓', U'█'}, U'─', U'·', "–"};
constexpr TimelineSymbols kTimelineAsciiSymbols{{U'-', U'+', U'=', U'#'}, U'~', U'.', "-"};

// The range of the clocks of all instructions whose clock is planned.
struct ClockRange {
  double lowest_mhz = std::numeric_limits<double>::infinity();
  double highest_mhz = 0;

  explicit ClockRange(const schedule::InstructionGraph& graph) {
    for (const schedule::OptionSet& set : graph.option_sets) {
      if (!plan_file::IsPlanned(set.kind)) continue;
      for (const profile::Option& option : set.options) {
        if (option.frequency_mhz <= 0) continue;
        lowest_mhz = std::min(lowest_mhz, option.frequency_mhz);
        highest_mhz = std::max(highest_mhz, option.frequency_mhz);
      }
    }
  }

  bool IsRange() const { return lowest_mhz < highest_mhz; }
  bool IsOneClock() const { return lowest_mhz == highest_mhz; }
  // The lowest clock of a shade, in MHz. BeginOf(kShades) is the end of the last shade.
  double BeginOf(std::size_t shade) const {
    return lowest_mhz +
           (highest_mhz - lowest_mhz) * static_cast<double>(shade) / static_cast<double>(kShades);
  }
  std::size_t ShadeOf(double frequency_mhz) const {
    std::size_t shade = kShades - 1;
    while (shade > 0 && frequency_mhz < BeginOf(shade)) --shade;
    return shade;
  }
};

// A character in the line of a pp_rank, before it is drawn: the time that each activity takes.
struct Slot {
  struct Share {
    Nanoseconds time = 0;
    Nanoseconds longest = 0;
    int instruction = 0;  // The instruction that takes `longest`.
  };
  std::array<Share, kActivities> shares;

  // The activity that takes most of the slot, or nothing if waiting does. `in_iteration` is the
  // part of the slot that belongs to the iteration.
  std::optional<std::size_t> Winner(Nanoseconds in_iteration) const {
    const auto most = std::ranges::max_element(shares, {}, &Share::time);
    Nanoseconds busy = 0;
    for (const Share& share : shares) busy += share.time;
    if (most->time == 0 || most->time < in_iteration - busy) return std::nullopt;
    return static_cast<std::size_t>(most - shares.begin());
  }
};

class TimelineDrawing {
 public:
  TimelineDrawing(const schedule::InstructionGraph& graph,
                  std::span<const report::Timeline> timelines, const Terminal& terminal)
      : graph_(graph),
        timelines_(timelines),
        terminal_(terminal),
        symbols_(terminal.unicode ? kTimelineUnicodeSymbols : kTimelineAsciiSymbols),
        clocks_(graph) {
    for (std::size_t i = 0; i < graph.pp_rank_orders.size(); ++i) {
      const bool is_shown = graph.pp_rank_orders.size() <= kMostPpRanks || i < kMostPpRanks / 2 ||
                            i + kMostPpRanks / 2 >= graph.pp_rank_orders.size();
      if (is_shown) pp_ranks_.push_back(i);
    }
    left_out_ = graph.pp_rank_orders.size() - pp_ranks_.size();
    for (const std::size_t rank : pp_ranks_) {
      labels_.push_back(FitColumns(graph.pp_rank_names[rank], kLongestLabel, terminal));
      gutter_ = std::max(gutter_, static_cast<int>(labels_.back().size()) + 1);
    }
    columns_ = terminal.width - gutter_;
    Nanoseconds longest = 1;
    for (const report::Timeline& timeline : timelines) {
      longest = std::max(longest, timeline.evaluation.time);
    }
    slot_ = (longest - 1) / columns_ + 1;
    is_dense_ = MeanDuration() < kLeastSlots * static_cast<double>(slot_);
  }

  std::string Draw() && {
    const int rows_each = 2 + static_cast<int>(pp_ranks_.size()) + (left_out_ > 0 ? 1 : 0);
    CharacterGrid grid(rows_each * static_cast<int>(timelines_.size()) + 2, terminal_.width);
    int row = 0;
    for (const report::Timeline& timeline : timelines_) {
      if (row > 0) ++row;
      grid.Put(row++, 0, FitColumns("timeline, " + timeline.name, terminal_.width, terminal_));
      for (std::size_t i = 0; i < pp_ranks_.size(); ++i) {
        if (left_out_ > 0 && i == kMostPpRanks / 2) {
          const std::string note = fmt::format("({} more pp_ranks, not drawn)", left_out_);
          grid.Put(row++, gutter_, FitColumns(note, columns_, terminal_));
        }
        grid.Put(row, 0, labels_[i]);
        DrawRank(timeline, pp_ranks_[i], grid, row++);
      }
    }
    const Axis axis({Quantity::kTime, Direction::kAcross, 0,
                     ToSeconds(slot_) * static_cast<double>(columns_), columns_});
    DrawTimeAxis(axis, grid, row, gutter_, columns_, terminal_);
    const std::u32string title =
        FitColumns("time (" + axis.UnitName(terminal_) + ")", columns_, terminal_);
    grid.Put(row + 2, terminal_.width - static_cast<int>(title.size()), title);
    return grid.Format(terminal_) + FormatLegend(ActivityLegend(), terminal_) +
           FormatLegend(ClockLegend(), terminal_);
  }

 private:
  // The mean duration of the instructions that are drawn, in nanoseconds.
  double MeanDuration() const {
    double sum = 0;
    std::size_t count = 0;
    for (const report::Timeline& timeline : timelines_) {
      for (const std::size_t rank : pp_ranks_) {
        for (const int instruction : graph_.pp_rank_orders[rank]) {
          sum += static_cast<double>(
              timeline.evaluation.durations[static_cast<std::size_t>(instruction)]);
        }
        count += graph_.pp_rank_orders[rank].size();
      }
    }
    return count == 0 ? 0 : sum / static_cast<double>(count);
  }

  void DrawRank(const report::Timeline& timeline, std::size_t rank, CharacterGrid& grid, int row) {
    const std::vector<Slot> slots = SlotsOf(timeline, rank);
    int last = kNothing;  // The instruction or activity that the previous column shows.
    for (int i = 0; i < columns_; ++i) {
      const Nanoseconds in_iteration =
          std::clamp<Nanoseconds>(timeline.evaluation.time - slot_ * i, 0, slot_);
      if (2 * in_iteration < slot_) break;  // Most of the slot is after the iteration.
      const Slot& slot = slots[static_cast<std::size_t>(i)];
      const std::optional<std::size_t> winner = slot.Winner(in_iteration);
      if (!winner) {
        grid.Put(row, gutter_ + i, symbols_.waiting);
        last = kNothing;
        continue;
      }
      const int instruction = slot.shares[*winner].instruction;
      const char32_t shade = ShadeOf(timeline, instruction);
      const int shown = is_dense_ ? static_cast<int>(*winner) : instruction;
      const bool is_letter = !terminal_.color && last != shown;
      const ActivityLook& look = kLooks[*winner];
      grid.Put(row, gutter_ + i, is_letter ? look.letter : shade, look.color);
      last = shown;
      is_present_[*winner] = true;
      has_no_clock_ |= shade == symbols_.no_clock;
    }
  }

  std::vector<Slot> SlotsOf(const report::Timeline& timeline, std::size_t rank) const {
    std::vector<Slot> slots(static_cast<std::size_t>(columns_));
    for (const int instruction : graph_.pp_rank_orders[rank]) {
      const Nanoseconds start = timeline.evaluation.starts[static_cast<std::size_t>(instruction)];
      const Nanoseconds end =
          start + timeline.evaluation.durations[static_cast<std::size_t>(instruction)];
      const auto activity =
          static_cast<std::size_t>(ActivityOf(graph_.options_of(instruction).kind));
      for (Nanoseconds i = start / slot_; i * slot_ < end; ++i) {
        Slot::Share& share = slots[static_cast<std::size_t>(i)].shares[activity];
        const Nanoseconds time = std::min(end, (i + 1) * slot_) - std::max(start, i * slot_);
        share.time += time;
        if (time > share.longest) {
          share.longest = time;
          share.instruction = instruction;
        }
      }
    }
    return slots;
  }

  char32_t ShadeOf(const report::Timeline& timeline, int instruction) const {
    const schedule::OptionSet& set = graph_.options_of(instruction);
    const auto option =
        static_cast<std::size_t>(timeline.options[static_cast<std::size_t>(instruction)]);
    const double frequency_mhz = set.options[option].frequency_mhz;
    if (!plan_file::IsPlanned(set.kind) || frequency_mhz <= 0) return symbols_.no_clock;
    return symbols_.shades[clocks_.ShadeOf(frequency_mhz)];
  }

  std::vector<LegendItem> ActivityLegend() const {
    std::vector<LegendItem> items;
    for (std::size_t i = 0; i < kActivities; ++i) {
      if (!is_present_[i]) continue;
      const char32_t symbol = terminal_.color ? symbols_.shades.back() : kLooks[i].letter;
      items.push_back({std::u32string(1, symbol),
                       fmt::format("{}{}{}", is_dense_ ? "mostly " : "", kLooks[i].name,
                                   is_dense_ || terminal_.color ? "" : " begins"),
                       kLooks[i].color});
    }
    items.push_back({std::u32string(1, symbols_.waiting), "waiting"});
    return items;
  }

  std::vector<LegendItem> ClockLegend() const {
    std::vector<LegendItem> items;
    const auto add = [&](char32_t symbol, std::string text) {
      items.push_back({std::u32string(1, symbol), std::move(text)});
    };
    if (clocks_.IsOneClock()) {
      add(symbols_.shades.back(), fmt::format("at {:.0f} MHz", clocks_.highest_mhz));
    }
    for (std::size_t shade = kShades; clocks_.IsRange() && shade-- > 0;) {
      add(symbols_.shades[shade], fmt::format("at {:.0f}{}{:.0f} MHz", clocks_.BeginOf(shade),
                                              symbols_.to, clocks_.BeginOf(shade + 1)));
    }
    if (has_no_clock_) add(symbols_.no_clock, "fixed instruction");
    return items;
  }

  const schedule::InstructionGraph& graph_;
  std::span<const report::Timeline> timelines_;
  const Terminal& terminal_;
  const TimelineSymbols& symbols_;
  ClockRange clocks_;
  std::vector<std::size_t> pp_ranks_;  // The pp_ranks that are drawn.
  std::size_t left_out_ = 0;
  std::vector<std::u32string> labels_;  // Of `pp_ranks_`.
  int gutter_ = 0;                      // The width of the labels and a blank.
  int columns_ = 0;                     // The width of the timeline.
  Nanoseconds slot_ = 1;                // The time of a column.
  bool is_dense_ = false;               // Letters only mark where another activity begins.
  // What the legend has to explain.
  std::array<bool, kActivities> is_present_{};
  bool has_no_clock_ = false;
};

}  // namespace

std::string DrawTimelines(const schedule::InstructionGraph& graph,
                          std::span<const report::Timeline> timelines, const Terminal& terminal) {
  return TimelineDrawing(graph, timelines, terminal).Draw();
}

}  // namespace perseus::cli
