#include "perseus/runtime/profiler/power_fit.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "perseus/runtime/profiler/cholesky.h"

namespace perseus::profiler {
namespace {

// If a combination of parameters has an eigenvalue below this, the data do not determine it (it is
// unseen). The eigenvalues are those of the normal equations, scaled to a diagonal of ones.
// Rounding causes values of about 1e-15. A combination that varies by a thousandth of its
// parameters has 1e-6, and can still be estimated.
constexpr double kNoInformation = 1e-9;
// If a parameter's part in an unseen combination is below this, the combination does not affect the
// parameter.
constexpr double kNoPart = 1e-6;
// The standard deviation of the common shift of a stretch's edges, in units of an edge's own
// standard deviation. It is so large that only the data determine the shift.
constexpr double kFreePhase = 10;
// The least error of an edge. A call and a reading take about this long.
constexpr double kLeastEdgeErrorS = 1e-6;
// Keeps the scale of an unused parameter finite before it is replaced by 0.
constexpr double kLeastScale = std::numeric_limits<double>::min();

Eigen::Index Index(std::size_t i) { return static_cast<Eigen::Index>(i); }

// The mean power of the windows from `first` to `last`.
double PowerAround(std::span<const PowerWindow> stretch, std::size_t first, std::size_t last) {
  double energy_j = 0;
  double seconds = 0;
  for (std::size_t k = first; k <= std::min(last, stretch.size() - 1); ++k) {
    energy_j += stretch[k].energy_j;
    seconds += stretch[k].seconds;
  }
  return seconds > 0 ? energy_j / seconds : 0;
}

// The power at an edge between windows.
double PowerAtEdge(std::span<const PowerWindow> stretch, std::size_t edge) {
  const double known_w =
      edge < stretch.size() ? stretch[edge].begin_power_w : stretch[edge - 1].end_power_w;
  return known_w > 0 ? known_w : PowerAround(stretch, edge == 0 ? 0 : edge - 1, edge);
}

// Adds the covariance of a shift of all edges by the same time.
void AddPhase(std::span<const PowerWindow> stretch, Eigen::MatrixXd& covariance) {
  Eigen::VectorXd moved_j(covariance.rows());
  for (std::size_t k = 0; k < stretch.size(); ++k) {
    moved_j(Index(k)) = kFreePhase * stretch[k].begin_error_s *
                        (PowerAtEdge(stretch, k) - PowerAtEdge(stretch, k + 1));
  }
  covariance += moved_j * moved_j.transpose();
}

// Adds S, the covariance of the errors of single edges.
void AddEdges(std::span<const PowerWindow> stretch, Eigen::MatrixXd& covariance) {
  for (std::size_t edge = 0; edge <= stretch.size(); ++edge) {
    const double error_s =
        edge < stretch.size() ? stretch[edge].begin_error_s : stretch[edge - 1].end_error_s;
    const double error_j = std::max(error_s, kLeastEdgeErrorS) * PowerAtEdge(stretch, edge);
    const Eigen::Index here = Index(edge);
    if (edge > 0) covariance(here - 1, here - 1) += error_j * error_j;
    if (edge == stretch.size()) continue;
    covariance(here, here) += error_j * error_j;
    if (edge > 0) covariance(here, here - 1) -= error_j * error_j;
  }
}

// Returns G, the covariance of what runs share, for a relative deviation of 1.
Eigen::MatrixXd SharedRuns(std::span<const PowerWindow> stretch) {
  Eigen::MatrixXd shared = Eigen::MatrixXd::Zero(Index(stretch.size()), Index(stretch.size()));
  std::map<int, std::vector<std::pair<std::size_t, double>>> energies_j;  // By run.
  for (std::size_t k = 0; k < stretch.size(); ++k) {
    const double power_w = PowerAround(stretch, k, k);
    for (const PowerWindow::Part& part : stretch[k].parts) {
      if (part.run >= 0) energies_j[part.run].emplace_back(k, power_w * part.seconds);
    }
  }
  for (const auto& [run, parts] : energies_j) {
    for (const auto& [k, a] : parts) {
      for (const auto& [l, b] : parts) shared(Index(k), Index(l)) += a * b;
    }
  }
  return shared;
}

struct Fitted {
  Eigen::VectorXd powers;
  Eigen::MatrixXd covariance;  // Without the common factor.
  std::vector<bool> identified;
  double rank = 0;
  double residual_squares = 0;
  double log_determinant = 0;  // For the identified part of the normal equations.
};

Fitted Solve(const PowerFit::Sums& sums) {
  const Eigen::Index n = Index(sums.right.size());
  Fitted fitted;
  fitted.identified.assign(sums.right.size(), true);
  if (n == 0) return fitted;
  // The matrix is symmetric, so row order and column order give the same matrix.
  const Eigen::Map<const Eigen::MatrixXd> normal(sums.normal.values.data(), n, n);
  const Eigen::Map<const Eigen::VectorXd> right(sums.right.data(), n);
  const Eigen::VectorXd scales =
      (normal.diagonal().array() > 0)
          .select(normal.diagonal().array().max(kLeastScale).rsqrt(), 0.0)
          .matrix();
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(scales.asDiagonal() * normal *
                                                             scales.asDiagonal());
  // Column k has the part of each parameter in combination k.
  const Eigen::MatrixXd& parts = eigen.eigenvectors();
  const Eigen::MatrixXd scaled_parts = scales.asDiagonal() * parts;
  const Eigen::VectorXd& information = eigen.eigenvalues();
  Eigen::VectorXd inverse = Eigen::VectorXd::Zero(n);
  for (Eigen::Index k = 0; k < n; ++k) {
    if (information(k) < kNoInformation) {
      for (Eigen::Index i = 0; i < n; ++i) {
        if (parts(i, k) * parts(i, k) > kNoPart) {
          fitted.identified[static_cast<std::size_t>(i)] = false;
        }
      }
      continue;
    }
    ++fitted.rank;
    fitted.log_determinant += std::log(information(k));
    inverse(k) = 1 / information(k);
  }
  const Eigen::VectorXd along = scaled_parts.transpose() * right;
  fitted.powers = scaled_parts * inverse.cwiseProduct(along);
  fitted.covariance = scaled_parts * inverse.asDiagonal() * scaled_parts.transpose();
  for (Eigen::Index i = 0; i < n; ++i) {
    if (scales(i) > 0) fitted.log_determinant -= 2 * std::log(scales(i));
  }
  const double explained = along.cwiseAbs2().dot(inverse);
  fitted.residual_squares = std::max(0.0, sums.squares - explained);
  return fitted;
}

}  // namespace

void SquareMatrix::GrowTo(std::size_t wanted) {
  if (wanted <= size) return;
  std::vector<double> grown(wanted * wanted);
  for (std::size_t i = 0; i < size; ++i) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * size), size,
                grown.begin() + static_cast<std::ptrdiff_t>(i * wanted));
  }
  values = std::move(grown);
  size = wanted;
}

void PowerFit::Add(std::span<const PowerWindow> stretch) {
  while (!stretch.empty()) {
    const std::size_t length = std::min(stretch.size(), kLongestStretch);
    AddShort(stretch.first(length));
    stretch = stretch.subspan(length);
  }
}

void PowerFit::AddShort(std::span<const PowerWindow> stretch) {
  std::map<std::size_t, Eigen::Index> columns;  // The columns of this stretch's parameters.
  std::size_t parameters = this->parameters();
  for (const PowerWindow& window : stretch) {
    for (const PowerWindow::Part& part : window.parts) {
      columns.try_emplace(part.parameter, Index(columns.size()));
      parameters = std::max(parameters, part.parameter + 1);
    }
  }
  Eigen::VectorXd energies_j(Index(stretch.size()));
  Eigen::MatrixXd seconds = Eigen::MatrixXd::Zero(Index(stretch.size()), Index(columns.size()));
  for (std::size_t k = 0; k < stretch.size(); ++k) {
    energies_j(Index(k)) = stretch[k].energy_j;
    for (const PowerWindow::Part& part : stretch[k].parts) {
      seconds(Index(k), columns.at(part.parameter)) += part.seconds;
    }
  }
  windows_ += static_cast<double>(stretch.size());
  ++stretches_;
  const Eigen::MatrixXd shared = SharedRuns(stretch);
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    Eigen::MatrixXd covariance = kRunDeviations[i] * kRunDeviations[i] * shared;
    AddEdges(stretch, covariance);
    AddPhase(stretch, covariance);
    const auto factor = FactorCovariance(std::move(covariance));
    const Eigen::VectorXd whitened = factor.matrixL().solve(energies_j);
    const Eigen::MatrixXd whitened_seconds = factor.matrixL().solve(seconds);
    const Eigen::MatrixXd normal = whitened_seconds.transpose() * whitened_seconds;
    const Eigen::VectorXd right = whitened_seconds.transpose() * whitened;
    Sums& sums = sums_[i];
    sums.normal.GrowTo(parameters);
    sums.right.resize(parameters);
    for (const auto& [a, column_a] : columns) {
      sums.right[a] += right(column_a);
      for (const auto& [b, column_b] : columns) sums.normal.At(a, b) += normal(column_a, column_b);
    }
    sums.squares += whitened.squaredNorm();
    sums.log_determinant += LogDeterminant(factor);
  }
}

void PowerFit::Add(const PowerFit& other) {
  windows_ += other.windows_;
  stretches_ += other.stretches_;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const Sums& theirs = other.sums_[i];
    const std::size_t size = theirs.right.size();
    sums_[i].normal.GrowTo(size);
    sums_[i].right.resize(std::max(size, sums_[i].right.size()));
    for (std::size_t a = 0; a < size; ++a) {
      sums_[i].right[a] += theirs.right[a];
      for (std::size_t b = 0; b < size; ++b) sums_[i].normal.At(a, b) += theirs.normal.At(a, b);
    }
    sums_[i].squares += theirs.squares;
    sums_[i].log_determinant += theirs.log_determinant;
  }
}

PowerFit::Answer PowerFit::Solve() const {
  Answer answer;
  answer.powers.resize(parameters());
  double greatest = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const Fitted fitted = profiler::Solve(sums_[i]);
    const double degrees = windows_ - fitted.rank;
    // If there are as many unknowns as windows, errors are unknown.
    if (degrees < 1) return answer;
    const double factor = std::max(fitted.residual_squares / degrees, 1e-18);
    const double likelihood =
        -0.5 * (degrees * std::log(factor) + sums_[i].log_determinant + fitted.log_determinant);
    if (likelihood <= greatest) continue;
    greatest = likelihood;
    answer.chosen = i;
    answer.likelihood = likelihood;
    answer.degrees_of_freedom = degrees;
    for (std::size_t p = 0; p < answer.powers.size(); ++p) {
      answer.powers[p] = {fitted.powers(Index(p)),
                          std::sqrt(std::max(0.0, factor * fitted.covariance(Index(p), Index(p)))),
                          fitted.identified[p] && sums_[i].normal.At(p, p) > 0};
    }
  }
  return answer;
}

PowerFit PowerFit::Restore(std::array<Sums, kRunDeviations.size()> sums, double windows,
                           double stretches) {
  PowerFit fit;
  fit.sums_ = std::move(sums);
  fit.windows_ = windows;
  fit.stretches_ = stretches;
  return fit;
}

}  // namespace perseus::profiler
