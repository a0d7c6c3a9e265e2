// Who gives a job its orders: numbers them, and puts back what was in force before.
//
// What was in force before is kept in JOBDIR/orders-before.json from the first temporary orders
// until lasting ones: a coordinator that is killed leaves it to the next one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "perseus/base/result.h"
#include "perseus/runtime/protocol/orders.h"

namespace perseus::protocol {

// How many steps ahead orders have to be given so that every rank has read them by then, though
// ranks look at most this often, and the file system tells other hosts late.
inline constexpr double kOrdersTakeSeconds = 1.0;
std::int64_t StepsAhead(double orders_take_s, double step_time_s);

class OrdersDesk {
 public:
  // Takes over from whoever gave orders last. Fails (kSystem) while another process has a desk of
  // that directory (JOBDIR/coordinator.lock).
  static Result<OrdersDesk> Open(const std::filesystem::path& job_directory);

  // In force from that step on (temporary ones: until theirs); the version that ranks will report.
  Result<std::int64_t> Give(Orders orders, std::int64_t from_step);
  // What was in force before, each rank's own plan if nothing was. At once, and for ranks that will
  // start anew, too: they begin at step 0.
  Result<std::int64_t> GiveBack();
  // Whether anything else is in force, of this desk or of one that died.
  bool HasToGiveBack() const { return is_kept_ || version_ != first_version_; }
  // Writes plans/NAME.json; what an order says of it.
  Result<std::string> AddPlan(const std::string& name, const std::string& plan) const;

  // The lasting orders: those that temporary ones hide, too. `own` if nothing was ever ordered.
  const Orders& before() const { return before_; }
  const std::filesystem::path& job_directory() const { return job_directory_; }
  // Of the orders given last, here or before; 0: none.
  std::int64_t version() const { return version_; }

 private:
  explicit OrdersDesk(std::filesystem::path job_directory)
      : job_directory_(std::move(job_directory)) {}

  std::filesystem::path job_directory_;
  std::shared_ptr<const int> lock_;  // A file descriptor.
  Orders before_;
  bool is_kept_ = false;  // In orders-before.json.
  std::int64_t version_ = 0;
  std::int64_t first_version_ = 0;
};

}  // namespace perseus::protocol
