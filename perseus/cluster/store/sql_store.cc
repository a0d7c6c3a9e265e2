#include "perseus/cluster/store/sql_store.h"

#include <sys/random.h>

#include <cstdint>
#include <random>

#include "perseus/base/excerpt.h"
#include "perseus/cluster/store/schema.h"

namespace perseus::store {
namespace {

constexpr std::string_view kSqlite = "sqlite:";
constexpr std::string_view kPostgres[] = {"postgresql://", "postgres://"};

Result<std::unique_ptr<Database>> OpenDatabase(const std::string& address) {
  if (address.starts_with(kSqlite) && address.size() > kSqlite.size()) {
    return OpenSqlite(address.substr(kSqlite.size()));
  }
  for (const std::string_view scheme : kPostgres) {
    if (address.starts_with(scheme)) return OpenPostgres(address);
  }
  // Not what was given instead: it may have a password in it.
  return Fail("that is no address of a database (expected sqlite:PATH or postgresql://HOST/NAME)");
}

}  // namespace

Result<std::unique_ptr<Store>> OpenStore(const std::string& address) {
  PERSEUS_ASSIGN_OR_RETURN(std::unique_ptr<Database> database, OpenDatabase(address));
  if (const Result<void> migrated = Migrate(*database); !migrated) return Fail(migrated);
  return std::make_unique<SqlStore>(std::move(database));
}

Result<void> SqlStore::Ping() {
  PERSEUS_RETURN_IF_ERROR(database_->Read("SELECT 1", {}));
  return {};
}

bool SqlStore::has_replicas() const { return database_->dialect().has_replicas; }

Result<void> SqlStore::TellReplicas(const std::vector<std::string>& texts) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    for (const std::string& text : texts) {
      auto told = transaction.Notify({.kind = Notice::Kind::kHeard, .name = text});
      if (!told) return told;
    }
    return {};
  });
}

Result<void> SqlStore::Listen(std::function<void(const Notice&)> heard) {
  return database_->Listen(std::move(heard));
}

Result<std::optional<SqlStore::LockedJob>> SqlStore::LockJob(Transaction& transaction,
                                                             std::string_view job) const {
  PERSEUS_ASSIGN_OR_RETURN(
      const Rows rows,
      transaction.Run(
          fmt::format("SELECT ended, generation, profile_version, assignment_version FROM jobs "
                      "WHERE id = $1 {}",
                      database_->dialect().for_update),
          {job}));
  if (rows.empty()) return std::nullopt;
  const Row& row = rows.front();
  return LockedJob{.has_ended = row.Integer(0) != 0,
                   .generation = row.Integer(1),
                   .profile_version = row.Integer(2),
                   .assignment_version = row.Integer(3)};
}

Result<SqlStore::LockedJob> SqlStore::LockRunningJob(Transaction& transaction,
                                                     std::string_view job) const {
  PERSEUS_ASSIGN_OR_RETURN(const std::optional<LockedJob> locked, LockJob(transaction, job));
  if (!locked) return Fail("there is no job {} (register it)", Excerpt(job));
  if (locked->has_ended) {
    return Fail("job {} has ended (register it again to go on)", Excerpt(job));
  }
  return *locked;
}

Result<void> RunSteps(Transaction& transaction, std::initializer_list<Step> steps) {
  for (const Step& step : steps) {
    PERSEUS_RETURN_IF_ERROR(transaction.Run(step.sql, step.parameters));
  }
  return {};
}

std::string MakeId(std::string_view prefix) {
  std::uint64_t number = 0;
  // The kernel's, without its interruptions below 256 bytes.
  if (::getrandom(&number, sizeof number, 0) != sizeof number) {
    std::random_device random;  // Throws where there is no randomness at all.
    number = std::uint64_t{random()} << 32 | random();
  }
  return fmt::format("{}{:016x}", prefix, number);
}

}  // namespace perseus::store
