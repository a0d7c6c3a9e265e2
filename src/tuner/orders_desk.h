// Who gives a job its orders: numbers them, and puts back what was in force before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "perseus/base/result.h"
#include "perseus/jobdir/orders.h"

namespace perseus {

// How many steps ahead orders have to be given so that every rank has read them by then, though
// ranks look at most this often, and the file system tells other hosts late.
inline constexpr double kOrdersTakeSeconds = 1.0;
std::int64_t StepsAhead(double step_time_s);

class OrdersDesk {
 public:
  // Takes over from whoever gave orders last. One desk a job at a time.
  static Result<OrdersDesk> Open(const std::filesystem::path& job_directory);

  // In force from that step on; the version that ranks will report.
  Result<std::int64_t> Give(Orders orders, std::int64_t from_step);
  // What was in force when the desk was opened, from that step on; no clocks if nothing was.
  Result<std::int64_t> GiveBack(std::int64_t from_step);
  // Writes plans/NAME.json; what an order says of it.
  Result<std::string> AddPlan(const std::string& name, const std::string& plan) const;

  const std::filesystem::path& job_directory() const { return job_directory_; }
  // Of the orders given last, here or before; 0: none.
  std::int64_t version() const { return version_; }

 private:
  explicit OrdersDesk(std::filesystem::path job_directory)
      : job_directory_(std::move(job_directory)) {}

  std::filesystem::path job_directory_;
  std::optional<Orders> before_;
  std::int64_t version_ = 0;
};

}  // namespace perseus
