#include "perseus/cluster/store/statements.h"

#include <fmt/core.h>

#include "perseus/base/excerpt.h"

namespace perseus::store {

Result<void> RunAll(Transaction& transaction, std::initializer_list<Statement> statements) {
  for (const Statement& statement : statements) {
    PERSEUS_RETURN_IF_ERROR(transaction.Run(statement.sql, statement.parameters));
  }
  return {};
}

Result<std::optional<LockedJob>> LockJob(const Database& database, Transaction& transaction,
                                         std::string_view job) {
  PERSEUS_ASSIGN_OR_RETURN(
      Rows rows,
      transaction.Run(
          fmt::format(
              "SELECT ended, generation, profile_version, assignment_version, key FROM jobs "
              "WHERE id = $1 {}",
              database.dialect().for_update),
          {job}));
  if (rows.empty()) return std::nullopt;
  LockedJob locked;
  Milliseconds ended = 0;
  rows.front().Take(ended, locked.generation, locked.profile_version, locked.assignment_version,
                    locked.key);
  locked.has_ended = ended != 0;
  return locked;
}

Result<LockedJob> LockRunningJob(const Database& database, Transaction& transaction,
                                 std::string_view job) {
  PERSEUS_ASSIGN_OR_RETURN(const std::optional<LockedJob> locked,
                           LockJob(database, transaction, job));
  if (!locked) return Fail("job {} does not exist (register it)", Excerpt(job));
  if (locked->has_ended) {
    return Fail("job {} has ended (register it again to continue)", Excerpt(job));
  }
  return *locked;
}

}  // namespace perseus::store
