#include "perseus/runtime/qualifier/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

namespace perseus::qualifier {
namespace {

constexpr double kPanelWidth = 360, kPanelHeight = 240;
constexpr double kLeft = 56, kTop = 40, kBottom = 44, kRight = 16;
constexpr const char* kColors[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                   "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f"};
constexpr int kTicks = 4;

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
  bool is_x_logarithmic = false;
};

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
                                y0 + kTop - 22, Escaped(panel.title));
  if (x_low > x_high) {
    return svg + fmt::format("<text x='{:.0f}' y='{:.0f}'>not measured</text>\n", x0 + kLeft,
                             y0 + kPanelHeight / 2);
  }
  if (x_low == x_high) {
    x_low -= 1;
    x_high += 1;
  }
  if (y_low == y_high) y_high = y_low + 1;
  const double width = kPanelWidth - kLeft - kRight, height = kPanelHeight - kTop - kBottom;
  const auto scaled = [&](double x) { return panel.is_x_logarithmic ? std::log10(x) : x; };
  const auto at_x = [&](double x) {
    return x0 + kLeft + width * (scaled(x) - scaled(x_low)) / (scaled(x_high) - scaled(x_low));
  };
  const auto at_y = [&](double y) {
    return y0 + kTop + height * (1 - (y - y_low) / (y_high - y_low));
  };
  for (int i = 0; i <= kTicks; ++i) {
    const double part = static_cast<double>(i) / kTicks;
    const double y = y_low + (y_high - y_low) * part;
    const double x = panel.is_x_logarithmic ? x_low * std::pow(x_high / x_low, part)
                                            : x_low + (x_high - x_low) * part;
    svg += fmt::format(
        "<line x1='{0:.1f}' x2='{1:.1f}' y1='{2:.1f}' y2='{2:.1f}' class='grid'/>"
        "<text x='{3:.1f}' y='{4:.1f}' text-anchor='end'>{5:.3g}</text>"
        "<text x='{6:.1f}' y='{7:.1f}' text-anchor='middle'>{8:.3g}</text>\n",
        x0 + kLeft, x0 + kLeft + width, at_y(y), x0 + kLeft - 4, at_y(y) + 3, y, at_x(x),
        y0 + kTop + height + 14, x);
  }
  svg += fmt::format(
      "<text x='{:.0f}' y='{:.0f}' text-anchor='middle'>{}</text>"
      "<text x='{:.0f}' y='{:.0f}'>{}</text>\n",
      x0 + kLeft + width / 2, y0 + kPanelHeight - 12, Escaped(panel.x_title), x0 + kLeft - 40,
      y0 + kTop - 6, Escaped(panel.y_title));
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
  Panel panel{"Switches: share that has landed", "time since the call (ms)", "share", {}, false};
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
  Panel panel{"What changes cost", "changes per second, of the node", "longer by (%)", {}, true};
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
  Panel panel{
      "Power", "SM clock (MHz)", "power (W)", {{"idle", {}}, {"blocked", {}}, {"busy", {}}}, false};
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
