// Estimates the powers of instructions that take 5 to 50 ms from an energy counter that changes
// every 20 to 100 ms.
//
// The problem. For each kind of instruction at each clock, the power of a GPU is taken as a
// constant p_j. While the GPU waits, the power is p_0. A *window* is the time between two values of
// the counter. The energy of a window is E = sum p_j x_j, where x_j is how long j ran in the
// window. A window rarely contains only one kind, but windows contain the kinds in different
// proportions. So a regression of E on x separates the kinds. The energy of an instruction is then
// p_j times its mean time.
//
// The errors, and why ordinary least squares is not enough:
//  - Edges. The time at which the counter took a value is known only to be between two reads,
//    (after, until], which are w apart. The middle of this interval has an error of up to w/2,
//    uniformly distributed, so its standard deviation is w / sqrt(12). If the error of an edge is
//    d, the energy p d moves from one window to the next, where p is the power at the edge. So the
//    errors of neighboring windows are anti-correlated, and the sum of energies over windows is
//    right. A regression with independent errors would lose this information.
//  - Phase. Counter and reads are both periodic, so all edges of a stretch may have the same error.
//    (A stretch is a sequence of neighboring windows.) No average over edges removes this error.
//    Intervals that ignore this error cover half of their nominal level (measured: 51 % for 95 %).
//    A common shift d changes window k by (p_begin - p_end) d. The shift is one unknown per
//    stretch. In C, this is a covariance in that direction, which is so large that a larger one
//    makes no difference.
//  - Runs. One run of an instruction draws slightly more power than another run (data, memory
//    traffic), with the relative standard deviation s. All windows that contain a part of the run
//    share this deviation. So neighboring windows are positively correlated if an instruction is
//    longer than a window. Intervals that ignore this correlation are too narrow.
// So the windows of a stretch, in order, have the covariance C = s^2 G + S. G_kl is the sum over
// runs of (p x_ik)(p x_il), and S is tridiagonal with the variances of edges. Generalized least
// squares with C is the best linear unbiased estimate (Aitken 1935). C is factored for each stretch
// (of at most kLongestStretch windows), and only the normal equations X' C^-1 X, X' C^-1 y are
// kept.
//
// s is unknown. Each s of a grid has its own normal equations. The answer uses the s with the
// greatest restricted likelihood (Patterson & Thompson 1971). The residuals also give a common
// factor of C. So only the ratio of s to the errors of edges has to be on the grid. Large values of
// s in the grid stand for small errors of edges. The p in C is the mean power of the neighboring
// windows. This p is measured, too, but an error of 5 % in it changes weights by 5 % and does not
// bias an estimate.
//
// Identifiability. If two kinds always occur in the same proportion, their separate powers cannot
// be computed. The eigenvectors of the (scaled) normal equations with eigenvalue 0 are the
// combinations that the data do not determine. A parameter with a part in such an eigenvector is
// reported as not identified, instead of as an arbitrary number. A parameter that is hardly
// identified has a wide interval.
//
// The model leaves out two effects. First, the power changes within an instruction. The model
// counts a part of an instruction with the average power; over many runs with random places, this
// error averages out. Second, the model leaves out slow drift (gpu_measurements.h).
//
// Not thread-safe. A stretch of m windows costs 5 m^3 / 6 multiplications. An answer costs about
// 10 p^3 multiplications for p parameters.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace perseus::profiler {

// A square matrix, stored by rows, that can grow.
struct SquareMatrix {
  std::size_t size = 0;
  std::vector<double> values;
  double& At(std::size_t i, std::size_t j) { return values[i * size + j]; }
  double At(std::size_t i, std::size_t j) const { return values[i * size + j]; }
  void GrowTo(std::size_t wanted);
  friend bool operator==(const SquareMatrix&, const SquareMatrix&) = default;
};

// The time between two consecutive values of the counter. Neighboring windows share an edge.
struct PowerWindow {
  // The part of a run that lies in the window.
  struct Part {
    std::size_t parameter = 0;
    double seconds = 0;
    // All parts of one run have the same number. -1: the GPU waits in this part. The power while it
    // waits does not vary from run to run.
    int run = -1;
  };
  double energy_j = 0;
  double seconds = 0;
  std::vector<Part> parts;
  double begin_error_s = 0;  // The standard deviations of the window's edges in time.
  double end_error_s = 0;
  // The power at the window's edges, if it is known. 0: the fit uses the mean of the neighboring
  // windows.
  double begin_power_w = 0;
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

  // Adds consecutive windows. Splits a stretch that is longer than kLongestStretch.
  void Add(std::span<const PowerWindow> stretch);

  // Adds everything that was added to `other`.
  void Add(const PowerFit& other);

  // The result. The index of `powers` is the parameter. A parameter without a window is not
  // identified.
  struct Answer {
    std::vector<PowerEstimate> powers;
    double likelihood = 0;          // The logarithm of the restricted likelihood.
    double degrees_of_freedom = 0;  // The degrees of freedom of the residuals.
    std::size_t chosen = 0;         // The index of the chosen s in kRunDeviations.
  };
  Answer Solve() const;

  // The sums over everything that was added. The state file stores them.
  struct Sums {
    SquareMatrix normal;        // X' C^-1 X
    std::vector<double> right;  // X' C^-1 y
    double squares = 0;         // y' C^-1 y
    double log_determinant = 0;
    friend bool operator==(const Sums&, const Sums&) = default;
  };
  const std::array<Sums, kRunDeviations.size()>& sums() const { return sums_; }
  double windows() const { return windows_; }
  double stretches() const { return stretches_; }
  std::size_t parameters() const { return sums_[0].right.size(); }
  static PowerFit Restore(std::array<Sums, kRunDeviations.size()> sums, double windows,
                          double stretches);

 private:
  void AddShort(std::span<const PowerWindow> stretch);

  std::array<Sums, kRunDeviations.size()> sums_;
  double windows_ = 0;
  double stretches_ = 0;
};

}  // namespace perseus::profiler
