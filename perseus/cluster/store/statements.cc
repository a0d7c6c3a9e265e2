#include "perseus/cluster/store/statements.h"

#include <fmt/format.h>

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
  Row& row = rows.front();
  return LockedJob{.has_ended = row.Integer(0) != 0,
                   .generation = row.Integer(1),
                   .profile_version = row.Integer(2),
                   .assignment_version = row.Integer(3),
                   .key = row.TakeText(4)};
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
