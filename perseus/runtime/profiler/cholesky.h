// The Cholesky factorization of a covariance matrix. Only .cc files of this module include it.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>

namespace perseus::profiler {

// Returns the factor L with L L' = `covariance`. Reads only the lower triangle of `covariance`. If
// rounding makes the matrix indefinite, multiplies the diagonal by 1 + 1e-12, or by more if
// necessary.
inline Eigen::LLT<Eigen::MatrixXd> FactorCovariance(Eigen::MatrixXd covariance) {
  Eigen::LLT<Eigen::MatrixXd> factor(covariance);
  constexpr double kFirstRaise = 1e-12;
  constexpr double kLastRaise = 1;
  for (double raise = kFirstRaise; factor.info() != Eigen::Success && raise < kLastRaise;
       raise *= 10) {
    covariance.diagonal() *= 1 + raise;
    factor.compute(covariance);
  }
  return factor;
}

// The logarithm of the determinant of the matrix that was factored.
inline double LogDeterminant(const Eigen::LLT<Eigen::MatrixXd>& factor) {
  return 2 * factor.matrixLLT().diagonal().array().log().sum();
}

}  // namespace perseus::profiler
