#include "perseus/runtime/client/change_predictor.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace perseus::client {
namespace {

constexpr double kMicrosecondNs = 1e3;
// The error of a single change and of the time at which a look takes the value: it does not add up.
constexpr double kJitterNs = 500 * kMicrosecondNs;
// Errors that add up, for each period: phase and period wander.
constexpr double kPhaseStepNs = 30 * kMicrosecondNs;
constexpr double kPhaseStepPart = 0.0002;   // As a part of a period.
constexpr double kPeriodStepPart = 0.0001;  // As a part of a period.
// Looks that are less probable than this show that the filter is wrong.
constexpr double kLeastPart = 1e-3;
constexpr double kSurpriseNs = 1e6;
constexpr double kPeriodDoubt = 0.1;
// Beyond this many standard deviations, a normal density is 0 in double precision.
constexpr double kFarAway = 40;

double Square(double value) { return value * value; }
double Density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double Distribution(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

}  // namespace

ChangePredictor::ChangePredictor(const Start& start)
    : origin_(start.last_change),
      period_ns_(start.period_ns),
      change_ns2_(Square(start.last_change_error_ns)),
      shared_ns2_(start.shared_ns2),
      period_ns2_(Square(start.period_error_ns)) {}

double ChangePredictor::ErrorAfter(int periods) const {
  const double n = periods;
  return std::sqrt(change_ns2_ + 2 * n * shared_ns2_ + n * n * period_ns2_ +
                   n * (Square(kPhaseStepNs) + Square(kPhaseStepPart * period_ns_)) +
                   Square(kJitterNs));
}

ChangePredictor::Prediction ChangePredictor::FirstFrom(Nanoseconds earliest) const {
  const double from_ns = static_cast<double>(earliest - origin_) - change_ns_;
  // A process that was stopped for a month must not overflow.
  constexpr double kMostPeriods = 1e6;
  const double periods = std::clamp(std::ceil(from_ns / period_ns_), 1.0, kMostPeriods);
  const auto later = static_cast<Nanoseconds>(change_ns_ + periods * period_ns_);
  const int whole = static_cast<int>(periods);
  return {origin_ + later, ErrorAfter(whole), whole};
}

void ChangePredictor::Pass(int periods) {
  const double n = periods;
  change_ns_ += n * period_ns_;
  change_ns2_ += 2 * n * shared_ns2_ + n * n * period_ns2_ +
                 n * (Square(kPhaseStepNs) + Square(kPhaseStepPart * period_ns_));
  shared_ns2_ += n * period_ns2_;
  period_ns2_ += n * Square(kPeriodStepPart * period_ns_);
  const auto whole = static_cast<Nanoseconds>(change_ns_);
  origin_ += whole;
  change_ns_ -= static_cast<double>(whole);
}

ChangePredictor::Moments ChangePredictor::MomentsInside(double begin_ns, double end_ns) const {
  const double variance = change_ns2_ + Square(kJitterNs);
  const double deviation = std::sqrt(variance);
  const double low = std::clamp((begin_ns - change_ns_) / deviation, -kFarAway, kFarAway);
  const double high = std::clamp((end_ns - change_ns_) / deviation, -kFarAway, kFarAway);
  const double part = Distribution(high) - Distribution(low);
  if (part < kLeastPart) return {part, change_ns_, variance};
  const double shift = (Density(low) - Density(high)) / part;
  const double slope = (low * Density(low) - high * Density(high)) / part;
  return {part, change_ns_ + deviation * shift, variance * (1 + slope - shift * shift)};
}

// Replaces the distribution of the current change, as it is observed, by this one.
void ChangePredictor::Use(double mean_ns, double variance_ns2) {
  const double observed = change_ns2_ + Square(kJitterNs);
  const double gain = change_ns2_ / observed;
  const double period_gain = shared_ns2_ / observed;
  const double moved = mean_ns - change_ns_;
  const double less = observed - variance_ns2;
  change_ns_ += gain * moved;
  period_ns_ = std::max(period_ns_ + period_gain * moved, period_ns_ / 2);
  change_ns2_ -= gain * gain * less;
  shared_ns2_ -= gain * period_gain * less;
  period_ns2_ -= period_gain * period_gain * less;
}

// Adds this variance to the time of the change. A part of the error is one of the period.
void ChangePredictor::Doubt(double variance_ns2) {
  change_ns2_ += variance_ns2;
  shared_ns2_ += kPeriodDoubt * variance_ns2;
  period_ns2_ += kPeriodDoubt * kPeriodDoubt * variance_ns2;
}

void ChangePredictor::WasInside(std::optional<Nanoseconds> begin, std::optional<Nanoseconds> end) {
  constexpr double kUnknown = 1e18;
  const double begin_ns = begin ? static_cast<double>(*begin - origin_) : -kUnknown;
  const double end_ns = end ? static_cast<double>(*end - origin_) : kUnknown;
  Moments inside = MomentsInside(begin_ns, end_ns);
  if (inside.part < kLeastPart) {
    const double away_ns = std::clamp(change_ns_, begin_ns, end_ns) - change_ns_;
    Doubt(Square(away_ns) + Square(kSurpriseNs));
    inside = MomentsInside(begin_ns, end_ns);
  }
  if (inside.part >= kLeastPart) return Use(inside.mean_ns, inside.variance_ns2);
  // A short window, far from where the change was expected.
  constexpr double kUniform = 12;
  Use((begin_ns + end_ns) / 2, Square(end_ns - begin_ns) / kUniform);
}

void ChangePredictor::WasOutside(Nanoseconds begin, Nanoseconds end) {
  const auto inside_of = [&] {
    return MomentsInside(static_cast<double>(begin - origin_), static_cast<double>(end - origin_));
  };
  Moments inside = inside_of();
  while (1 - inside.part < kLeastPart) {
    Doubt(3 * change_ns2_ + Square(kSurpriseNs));
    inside = inside_of();
  }
  // The moments of the whole are those of both parts together.
  if (inside.part < kLeastPart) return;
  const double outside = 1 - inside.part;
  const double variance = change_ns2_ + Square(kJitterNs);
  const double mean = (change_ns_ - inside.part * inside.mean_ns) / outside;
  // Squares around change_ns_, so that no digits are lost.
  const double inside_squares = inside.variance_ns2 + Square(inside.mean_ns - change_ns_);
  const double outside_squares = (variance - inside.part * inside_squares) / outside;
  Use(mean, outside_squares - Square(mean - change_ns_));
}

}  // namespace perseus::client
