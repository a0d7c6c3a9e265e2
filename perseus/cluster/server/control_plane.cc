#include "perseus/cluster/server/control_plane.h"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/host.h"
#include "perseus/cluster/server/fleet.h"
#include "perseus/cluster/server/http_front.h"
#include "perseus/cluster/server/maintenance.h"
#include "perseus/cluster/server/server_clock.h"
#include "perseus/cluster/server/server_database.h"
#include "perseus/cluster/server/server_metrics.h"

namespace perseus::server {
namespace {

store::Milliseconds SystemNow() { return SinceEpoch() / kMillisecond; }

std::string ReplicaName() { return fmt::format("{}-{}", HostName(), getpid()); }

}  // namespace

// Each part uses only parts above it.
class ControlPlane::Impl {
 public:
  Impl(ControlPlaneOptions options, std::unique_ptr<store::Store> store, spdlog::logger& log)
      : options_(std::move(options)),
        database_(options_, std::move(store), metrics_, log),
        fleet_(options_, loop_, database_, metrics_, log),
        front_(options_, loop_, database_, fleet_, metrics_, log),
        maintenance_(options_, loop_, database_, fleet_, front_, log) {}

  // The loop has ended. First all threads end, because they use all parts.
  ~Impl() {
    front_.End();
    fleet_.End();
    database_.End();
  }

  Result<void> Start() {
    PERSEUS_RETURN_IF_ERROR(front_.Start());
    PERSEUS_RETURN_IF_ERROR(database_.store().Listen([this](const store::Notice& notice) {
      front_.Receive(notice);
      fleet_.Receive(notice);
    }));
    fleet_.StartPlanning();
    database_.StartProbe();
    maintenance_.Run();
    return {};
  }

  void Run() {
    const auto keeps_running = boost::asio::make_work_guard(loop_);
    loop_.run();
  }

  void Stop() {
    boost::asio::post(loop_, [this] {
      maintenance_.Stop();
      front_.Stop();
    });
  }

  HttpFront& front() { return front_; }

 private:
  const ControlPlaneOptions options_;
  ServerMetrics metrics_;
  boost::asio::io_context loop_{1};
  ServerDatabase database_;
  Fleet fleet_;
  HttpFront front_;
  Maintenance maintenance_;
};

ControlPlane::ControlPlane(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlPlane::~ControlPlane() = default;

Result<std::unique_ptr<ControlPlane>> ControlPlane::Start(ControlPlaneOptions options,
                                                          spdlog::logger& log) {
  if (options.replica.empty()) options.replica = ReplicaName();
  PERSEUS_ASSIGN_OR_RETURN(auto store, store::OpenStore(options.database));
  if (!options.now) {
    PERSEUS_ASSIGN_OR_RETURN(const auto database, store->Clock());
    options.clock = std::make_shared<ServerClock>(database.value_or(SystemNow()));
    options.now = [clock = options.clock] { return clock->Now(); };
  }
  auto impl = std::make_unique<Impl>(std::move(options), std::move(store), log);
  PERSEUS_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<ControlPlane>(new ControlPlane(std::move(impl)));
}

int ControlPlane::port() const { return impl_->front().port(); }
void ControlPlane::Run() { impl_->Run(); }
void ControlPlane::Stop() { impl_->Stop(); }
void ControlPlane::Reload() { impl_->front().Reload(); }
const std::vector<std::string>& ControlPlane::Routes() const { return impl_->front().routes(); }

}  // namespace perseus::server
