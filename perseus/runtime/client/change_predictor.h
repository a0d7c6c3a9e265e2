// Predicts when an energy counter changes next. The counter changes about once a period. Period and
// phase are learned from looks at the counter, and may drift.
//
// Method. The time of the next change and the period are two unknowns with a normal distribution
// (a Kalman filter). A look at the counter does not measure the time of a change. It only says on
// which side of the look the change was: before it, after it, or between two looks. So the filter
// replaces the prior distribution of the change's time by the part of it that agrees with the
// looks, and this part by a normal distribution with the same mean and variance (assumed density
// filtering, Maybeck 1982). The period follows through its covariance with the time. A change that
// disagrees with all that was expected makes the filter uncertain instead of wrong: its variance
// grows until the looks are plausible.
//
// A phase-locked loop that follows the middles of windows was tried on paper and left out: a window
// lies where the prediction and a random offset put it, so its middle says nothing about the change
// except that it was inside.
//
// Times are CLOCK_MONOTONIC. Not thread safe.
#pragma once

#include <optional>

#include "perseus/base/units.h"

namespace perseus::client {

class ChangePredictor {
 public:
  // What is known from the windows of the first changes. Both errors are standard deviations.
  struct Start {
    Nanoseconds last_change = 0;
    double last_change_error_ns = 0;
    double period_ns = 0;  // Above 0.
    double period_error_ns = 0;
    double shared_ns2 = 0;  // The covariance of the two errors.
  };
  explicit ChangePredictor(const Start& start);

  struct Prediction {
    Nanoseconds at = 0;
    double error_ns = 0;  // Standard deviation.
    int periods = 0;      // Since the last change that was predicted and passed.
  };
  // Predicts the first change from `earliest` on.
  Prediction FirstFrom(Nanoseconds earliest) const;

  // Makes the change this many periods later the current one. 1 or more.
  void Pass(int periods);
  // The current change was from `begin` until `end`. An absent end is not known.
  void WasInside(std::optional<Nanoseconds> begin, std::optional<Nanoseconds> end);
  // The current change was before `begin` or after `end`.
  void WasOutside(Nanoseconds begin, Nanoseconds end);

  double period_ns() const { return period_ns_; }

 private:
  struct Moments {
    double part = 0;  // The probability of the interval.
    double mean_ns = 0;
    double variance_ns2 = 0;
  };
  Moments MomentsInside(double begin_ns, double end_ns) const;
  double ErrorAfter(int periods) const;
  void Doubt(double variance_ns2);
  void Use(double mean_ns, double variance_ns2);

  Nanoseconds origin_ = 0;  // change_ns_ counts from here, so that a double is exact enough.
  double change_ns_ = 0;
  double period_ns_ = 0;
  // The covariance matrix of change_ns_ and period_ns_.
  double change_ns2_ = 0;
  double shared_ns2_ = 0;
  double period_ns2_ = 0;
};

}  // namespace perseus::client
