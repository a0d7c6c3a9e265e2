#include "perseus/cluster/store/store.h"

#include <utility>

#include "perseus/cluster/store/database.h"
#include "perseus/cluster/store/schema.h"
#include "perseus/cluster/store/statements.h"

namespace perseus::store {
namespace {

constexpr std::string_view kSqlitePrefix = "sqlite:";
constexpr std::string_view kPostgresPrefixes[] = {"postgresql://", "postgres://"};

}  // namespace

Result<std::unique_ptr<Database>> OpenDatabase(const std::string& address) {
  if (address.starts_with(kSqlitePrefix) && address.size() > kSqlitePrefix.size()) {
    return OpenSqlite(address.substr(kSqlitePrefix.size()));
  }
  for (const std::string_view prefix : kPostgresPrefixes) {
    if (address.starts_with(prefix)) return OpenPostgres(address);
  }
  // The message does not show the address, which may contain a password.
  return Fail("this is not a database address (expected sqlite:PATH or postgresql://HOST/NAME)");
}

Result<std::unique_ptr<Store>> OpenStore(const std::string& address) {
  PERSEUS_ASSIGN_OR_RETURN(std::unique_ptr<Database> database, OpenDatabase(address));
  PERSEUS_RETURN_IF_ERROR(CreateTables(*database));
  return std::make_unique<Store>(std::move(database));
}

Store::Store(std::unique_ptr<Database> database) : database_(std::move(database)) {}

Store::~Store() = default;

Result<void> Store::Ping() {
  PERSEUS_RETURN_IF_ERROR(database_->Read("SELECT 1", {}));
  return {};
}

Result<void> Store::PingWrite(Milliseconds now) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_RETURN_IF_ERROR(transaction.Run("UPDATE heartbeat SET at = $1", {now}));
    return {};
  });
}

std::int64_t Store::failed_writes() const { return database_->failed_writes(); }

Result<std::optional<Milliseconds>> Store::Clock() {
  const std::string_view clock = database_->dialect().clock;
  if (clock.empty()) return std::optional<Milliseconds>();
  return ReadOne(*database_, clock, {}, [](Row& row) { return row.Time(0); });
}

bool Store::has_replicas() const { return database_->dialect().has_replicas; }

Result<void> Store::NotifyReplicas(const std::vector<std::string>& texts) {
  const auto notify = [&](Transaction& transaction) -> Result<void> {
    for (const std::string& text : texts) {
      PERSEUS_RETURN_IF_ERROR(transaction.Notify({.kind = Notice::Kind::kSteps, .name = text}));
    }
    return {};
  };
  return database_->Transact(notify, Durability::kInMemory);
}

Result<void> Store::Listen(std::function<void(const Notice&)> receive) {
  return database_->Listen(std::move(receive));
}

}  // namespace perseus::store
