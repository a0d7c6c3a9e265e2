#include "perseus/tuner/orders_desk.h"

#include <cmath>
#include <utility>

#include "perseus/base/file.h"

namespace perseus {

std::int64_t StepsAhead(double step_time_s) {
  // The step that runs is not over yet.
  return 2 + static_cast<std::int64_t>(std::ceil(kOrdersTakeSeconds / step_time_s));
}

Result<OrdersDesk> OrdersDesk::Open(const std::filesystem::path& job_directory) {
  auto before = ReadOrders(job_directory);
  if (!before) return Fail(before);
  OrdersDesk desk(job_directory);
  desk.before_ = *std::move(before);
  if (desk.before_) desk.version_ = desk.before_->version;
  return desk;
}

Result<std::int64_t> OrdersDesk::Give(Orders orders, std::int64_t from_step) {
  orders.version = version_ + 1;
  orders.from_step = from_step;
  if (auto written = WriteOrders(job_directory_, orders); !written) return Fail(written);
  return ++version_;
}

Result<std::int64_t> OrdersDesk::GiveBack(std::int64_t from_step) {
  return Give(before_.value_or(Orders()), from_step);
}

Result<std::string> OrdersDesk::AddPlan(const std::string& name, const std::string& plan) const {
  const std::string path = fmt::format("plans/{}.json", name);
  if (auto written = WriteFileAtomically(job_directory_ / path, plan); !written) {
    return Fail(written);
  }
  return path;
}

}  // namespace perseus
