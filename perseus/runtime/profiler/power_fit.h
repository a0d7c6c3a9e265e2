// Powers from an energy counter that moves every 20 to 100 ms, of instructions that take 5 to 50
// ms.
//
// The problem. What a GPU draws is taken to be a constant of what it runs: p_j for each kind of
// instruction at each clock, p_0 while it waits. A *window* is the time between two values of the
// counter; in it, E = sum p_j x_j, where x_j is how long j ran in it. Windows rarely hold one kind
// alone, but they hold the kinds in different parts, so that a regression of E on x tells them
// apart. (An energy per instruction follows: p_j times its mean time.)
//
// Errors, and why plain least squares is not enough:
//   - Edges. That the counter took a value is known only to lie between two looks at it,
//     (after, until]. The middle is off by up to w/2, uniformly: standard deviation w / sqrt(12).
//     An edge that is off by d takes p d from one window and gives it to the next, p being the
//     power there: neighbours' errors are anti-correlated. Energies sum up right over windows, and
//     a regression that takes them for independent throws that away.
//   - Phase. Counter and looks are both periodic, so all edges of a stretch may be off by the same
//     time, which no averaging over edges takes away: intervals that forget it cover half of what
//     they say (measured: 51 % for 95 %). A common shift d changes window k by (p_begin - p_end) d;
//     it is left free, one unknown a stretch (a covariance along that direction, as wide as makes
//     no difference).
//   - Runs. One run of an instruction draws a little more than another (data, memory traffic):
//     relative standard deviation s. All windows that it lies in share that, so neighbours are
//     correlated positively where an instruction is longer than a window; intervals that forget
//     that are too narrow.
// So the windows of a stretch, in order, have the covariance C = s^2 G + S: G_kl = sum over runs of
// (p x_ik)(p x_il), S tridiagonal with edge variances. Generalised least squares with it is the
// best linear unbiased estimate (Aitken 1935). C is factored for each stretch (at most
// kLongestStretch windows) and only the normal equations X' C^-1 X, X' C^-1 y are kept.
//
// s is not known. A grid of it is carried along, each with its own normal equations, and the one of
// greatest restricted likelihood (Patterson & Thompson 1971) is read out; a common factor on C
// is estimated besides, from the residuals, so that only the ratio of s to the edges has to be on
// the grid: large values of s stand for edges that are all off alike. The p in C is the mean power
// of the windows around: it is measured, too, but an error of it of 5 % changes weights, and no
// estimate, by 5 %.
//
// Identifiability. Two kinds that always come in the same proportion have no powers of their own.
// The eigenvectors of the (scaled) normal equations with eigenvalue 0 are what the data cannot
// tell; a parameter that has a part in one is reported as not identified, instead of a number that
// the arithmetic happens to give. A parameter that is nearly so has an honest, wide interval.
//
// What it leaves out: that power changes within an instruction (a window's part of it counts as
// average; over many runs at random places that evens out), and slow drift (drift.h).
//
// Not thread safe. A stretch of m windows costs 5 m^3 / 6 multiplications, an answer about 10 p^3
// of p parameters.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace perseus::profiler {

// A square matrix by rows that grows.
struct SquareMatrix {
  std::size_t size = 0;
  std::vector<double> values;
  double& At(std::size_t i, std::size_t j) { return values[i * size + j]; }
  double At(std::size_t i, std::size_t j) const { return values[i * size + j]; }
  void GrowTo(std::size_t wanted);
  friend bool operator==(const SquareMatrix&, const SquareMatrix&) = default;
};

// One value of the counter after the other. Windows of a stretch share their edges.
struct PowerWindow {
  // Of the part of a run that lies in it.
  struct Part {
    std::size_t parameter = 0;
    double seconds = 0;
    int run = -1;  // The same number for all parts of a run; -1: waiting, which does not vary.
  };
  double energy_j = 0;
  double seconds = 0;
  std::vector<Part> parts;
  double begin_error_s = 0;  // Standard deviations of its edges.
  double end_error_s = 0;
  double begin_power_w = 0;  // Drawn at its edges, where that is known already; 0: the mean around.
  double end_power_w = 0;
};

struct PowerEstimate {
  double power_w = 0;
  double standard_error_w = 0;
  bool is_identified = false;
};

class PowerFit {
 public:
  static constexpr std::size_t kLongestStretch = 128;
  static constexpr std::array kRunDeviations = {0.005, 0.02, 0.08, 0.32, 1.28};

  // Consecutive windows; longer stretches are cut.
  void Add(std::span<const PowerWindow> stretch);

  // All that another one was given.
  void Add(const PowerFit& other);

  // By parameter. Those that never had a window are not identified.
  struct Answer {
    std::vector<PowerEstimate> powers;
    double likelihood = 0;          // Restricted; its logarithm.
    double degrees_of_freedom = 0;  // Of the residuals.
    double run_deviation = 0;       // The s that the likelihood chose, times the common factor.
    std::size_t chosen = 0;         // Its place on the grid.
  };
  Answer Solve() const;

  // What the state file keeps: everything that was added.
  struct Sums {
    SquareMatrix normal;        // X' C^-1 X
    std::vector<double> right;  // X' C^-1 y
    double squares = 0;         // y' C^-1 y
    double log_determinant = 0;
    friend bool operator==(const Sums&, const Sums&) = default;
  };
  const std::array<Sums, kRunDeviations.size()>& sums() const { return sums_; }
  double windows() const { return windows_; }
  std::size_t parameters() const { return sums_[0].right.size(); }
  static PowerFit Restore(std::array<Sums, kRunDeviations.size()> sums, double windows);

 private:
  void AddShort(std::span<const PowerWindow> stretch);

  std::array<Sums, kRunDeviations.size()> sums_;
  double windows_ = 0;
};

}  // namespace perseus::profiler
