#include "perseus/runtime/qualifier/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "perseus/base/round_step.h"

namespace perseus::qualifier {
namespace {

constexpr double kPanelWidth = 360, kPanelHeight = 240;
constexpr double kLeft = 56, kTop = 44, kBottom = 44, kRight = 16;
constexpr const char* kColors[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                   "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f"};
constexpr double kLeastBetweenRows = 32, kLeastBetweenColumns = 44;  // Of ticks.
constexpr std::size_t kMostLogarithmicTicks = 9;
constexpr double kMargin = 0.03;  // Between the outermost values and the ends of an axis.

using hardware_facts::Estimate;

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '&') {
      escaped += "&amp;";
    } else {
      escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return escaped;
}

struct PlotRow {
  double x = 0, y = 0;
  double low = 0, high = 0;  // Of y. Equal: no bar.
};

struct PlotSeries {
  std::string name;
  std::vector<PlotRow> rows;
};

struct Panel {
  std::string title, x_title, y_title;
  std::vector<PlotSeries> series;
  enum class X { kAsMeasured, kFromZero, kLogarithmic } x = X::kAsMeasured;
};

// From `low` to `high`, with ticks at round numbers.
struct PlotAxis {
  double low = 0, high = 1;
  bool is_logarithmic = false;
  struct Tick {
    double at = 0;
    std::string label;
  };
  std::vector<Tick> ticks = {};

  // 0 at the low end, 1 at the high end.
  double Part(double value) const {
    return is_logarithmic ? std::log(value / low) / std::log(high / low)
                          : (value - low) / (high - low);
  }
  void AddTick(const RoundStep& step, double count) {
    ticks.push_back({count * step.value(), step.Format(count * step.value())});
  }
};

// An axis that includes 0, and ends at ticks.
PlotAxis AxisFromTicks(double low, double high, double most_ticks) {
  low = std::min(low, 0.0);
  high = std::max(high, 0.0);
  if (low == high) high = low + 1;
  const RoundStep step = RoundStepFrom((high - low) / most_ticks);
  const double first = std::floor(low / step.value()), last = std::ceil(high / step.value());
  PlotAxis axis{.low = first * step.value(), .high = last * step.value()};
  for (double count = first; count <= last; ++count) axis.AddTick(step, count);
  return axis;
}

PlotAxis LinearAxis(double low, double high, double most_ticks) {
  if (low == high) {
    low -= 1;
    high += 1;
  }
  PlotAxis axis{.low = low, .high = high};
  const RoundStep step = RoundStepFrom((high - low) / most_ticks);
  for (double count = std::ceil(low / step.value()); count * step.value() <= high; ++count) {
    axis.AddTick(step, count);
  }
  return axis;
}

// Its ticks are the round steps themselves: 1, 2, 5, 10, and so on. Over many decades, only the
// powers of ten. Requires low > 0.
PlotAxis LogarithmicAxis(double low, double high) {
  if (low == high) {
    low /= 2;
    high *= 2;
  }
  PlotAxis axis{.low = low, .high = high, .is_logarithmic = true};
  for (RoundStep step = RoundStepFrom(low); step.value() <= high; step = NextRoundStep(step)) {
    axis.AddTick(step, 1);
  }
  if (axis.ticks.size() > kMostLogarithmicTicks) {
    std::erase_if(axis.ticks, [](const PlotAxis::Tick& tick) {
      return RoundStepFrom(tick.at * (1 - 1e-9)).digit != 1;
    });
  }
  return axis;
}

PlotAxis MakeXAxis(Panel::X kind, double low, double high, double most_ticks) {
  switch (kind) {
    case Panel::X::kFromZero:
      return AxisFromTicks(0, high * (1 + kMargin), most_ticks);
    case Panel::X::kLogarithmic:
      return LogarithmicAxis(low / (1 + kMargin), high * (1 + kMargin));
    case Panel::X::kAsMeasured:
      break;
  }
  const double margin = kMargin * (high - low);
  return LinearAxis(low - margin, high + margin, most_ticks);
}

std::string DrawPanel(const Panel& panel, double x0, double y0) {
  double x_low = INFINITY, x_high = -INFINITY, y_low = 0, y_high = 0;
  for (const PlotSeries& series : panel.series) {
    for (const PlotRow& row : series.rows) {
      x_low = std::min(x_low, row.x);
      x_high = std::max(x_high, row.x);
      y_low = std::min({y_low, row.y, row.low});
      y_high = std::max({y_high, row.y, row.high});
    }
  }
  std::string svg = fmt::format("<text x='{:.0f}' y='{:.0f}' class='title'>{}</text>\n", x0 + kLeft,
                                y0 + kTop - 26, Escaped(panel.title));
  if (x_low > x_high) {
    return svg + fmt::format("<text x='{:.0f}' y='{:.0f}'>not measured</text>\n", x0 + kLeft,
                             y0 + kPanelHeight / 2);
  }
  const double width = kPanelWidth - kLeft - kRight, height = kPanelHeight - kTop - kBottom;
  const PlotAxis x_axis = MakeXAxis(panel.x, x_low, x_high, width / kLeastBetweenColumns);
  const PlotAxis y_axis = AxisFromTicks(y_low, y_high, height / kLeastBetweenRows);
  const auto at_x = [&](double x) { return x0 + kLeft + width * x_axis.Part(x); };
  const auto at_y = [&](double y) { return y0 + kTop + height * (1 - y_axis.Part(y)); };
  for (const PlotAxis::Tick& tick : y_axis.ticks) {
    svg += fmt::format(
        "<line x1='{0:.1f}' x2='{1:.1f}' y1='{2:.1f}' y2='{2:.1f}' class='grid'/>"
        "<text x='{3:.1f}' y='{4:.1f}' text-anchor='end'>{5}</text>\n",
        x0 + kLeft, x0 + kLeft + width, at_y(tick.at), x0 + kLeft - 4, at_y(tick.at) + 3,
        tick.label);
  }
  for (const PlotAxis::Tick& tick : x_axis.ticks) {
    svg += fmt::format(
        "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' class='grid'/>"
        "<text x='{0:.1f}' y='{3:.1f}' text-anchor='middle'>{4}</text>\n",
        at_x(tick.at), y0 + kTop, y0 + kTop + height, y0 + kTop + height + 14, tick.label);
  }
  svg += fmt::format(
      "<text x='{:.0f}' y='{:.0f}' text-anchor='middle'>{}</text>"
      "<text x='{:.0f}' y='{:.0f}'>{}</text>\n",
      x0 + kLeft + width / 2, y0 + kPanelHeight - 12, Escaped(panel.x_title), x0 + kLeft - 50,
      y0 + kTop - 9, Escaped(panel.y_title));
  for (std::size_t i = 0; i < panel.series.size(); ++i) {
    const PlotSeries& series = panel.series[i];
    const char* color = kColors[i % std::size(kColors)];
    std::string points;
    for (const PlotRow& row : series.rows) {
      points += fmt::format("{:.1f},{:.1f} ", at_x(row.x), at_y(row.y));
      if (row.high > row.low) {
        svg += fmt::format(
            "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' stroke='{3}'/>\n",
            at_x(row.x), at_y(row.low), at_y(row.high), color);
      }
    }
    svg += fmt::format(
        "<polyline points='{}' fill='none' stroke='{}' stroke-width='1.5'/>"
        "<text x='{:.0f}' y='{:.0f}' fill='{}'>{}</text>\n",
        points, color, x0 + kPanelWidth - kRight + 4, y0 + kTop + 8 + 14 * static_cast<double>(i),
        color, Escaped(series.name));
  }
  return svg;
}

Panel LatencyPanel(const Qualification& qualification) {
  Panel panel{"Switches: share that has landed",
              "time since the call (ms)",
              "share",
              {},
              Panel::X::kFromZero};
  for (const LatencySamples& one : qualification.latencies) {
    PlotSeries& series = panel.series.emplace_back();
    series.name = fmt::format("{} {}, {}", one.is_far ? "far" : "near",
                              one.direction == hardware_facts::Direction::kUp ? "up" : "down",
                              one.all_gpus ? "all GPUs" : "one GPU");
    std::vector<double> sorted = one.latencies_ms;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      const double share = static_cast<double>(i + 1) / static_cast<double>(sorted.size());
      series.rows.push_back({sorted[i], share, share, share});
    }
  }
  return panel;
}

Panel InterferencePanel(const hardware_facts::HardwareFacts& facts) {
  Panel panel{"What changes cost",
              "changes per second, of the node",
              "longer by (%)",
              {},
              Panel::X::kLogarithmic};
  std::map<std::string, PlotSeries> by_kind;
  for (const auto& one : facts.interference) {
    if (one.changes_per_s <= 0) continue;
    PlotSeries& series = by_kind[one.kind];
    series.name = one.kind;
    series.rows.push_back({one.changes_per_s, 100 * one.slowdown.value, 100 * one.slowdown.low,
                           100 * one.slowdown.high});
  }
  for (auto& [kind, series] : by_kind) panel.series.push_back(std::move(series));
  return panel;
}

Panel PowerPanel(const hardware_facts::HardwareFacts& facts) {
  Panel panel{"Power",
              "SM clock (MHz)",
              "power (W)",
              {{"idle", {}}, {"blocked", {}}, {"busy", {}}},
              Panel::X::kAsMeasured};
  for (const auto& one : facts.power) {
    const auto add = [&](std::size_t series, const std::optional<Estimate>& power) {
      if (!power) return;
      panel.series[series].rows.push_back(
          {1.0 * one.sm_clock_mhz, power->value, power->low, power->high});
    };
    add(0, one.idle_w);
    add(1, one.blocked_w);
    add(2, one.busy_w);
  }
  return panel;
}

}  // namespace

std::string DrawQualification(const Qualification& qualification) {
  constexpr double kLegend = 150;
  const Panel panels[] = {LatencyPanel(qualification), InterferencePanel(qualification.facts),
                          PowerPanel(qualification.facts)};
  const double width = kPanelWidth + kLegend;
  const double height = kPanelHeight * static_cast<double>(std::size(panels)) + 30;
  std::string svg = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 "
      "{0:.0f} "
      "{1:.0f}'>\n<style>text{{font:11px sans-serif}} .title{{font-weight:bold}} "
      ".grid{{stroke:#ddd}}</style>\n<rect width='100%' height='100%' fill='white'/>\n"
      "<text x='{2:.0f}' y='20' class='title'>{3}, {4} x {5}</text>\n",
      width, height, kLeft, Escaped(qualification.facts.host), qualification.facts.gpu_count,
      Escaped(qualification.facts.gpu_name));
  double y = 24;
  for (const Panel& panel : panels) {
    svg += DrawPanel(panel, 0, y);
    y += kPanelHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace perseus::qualifier
