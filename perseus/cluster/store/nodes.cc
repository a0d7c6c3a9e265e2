// Stores nodes, and the ranks of clients of Zeus.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "perseus/cluster/node_messages/node_messages.h"
#include "perseus/cluster/store/audit.h"
#include "perseus/cluster/store/statements.h"
#include "perseus/cluster/store/store.h"

namespace perseus::store {
namespace {

constexpr std::string_view kNodeColumns =
    "nodes.job, nodes.node, nodes.ranks, nodes.acknowledged, nodes.following, nodes.since_step, "
    "nodes.seen, nodes.ran, nodes.running, nodes.without_lease";

NodeRecord NodeOf(Row& row) {
  NodeRecord node;
  row.Take(node.job, node.node, node.ranks, node.acknowledged, node.following, node.since_step,
           node.seen, node.ran, node.running, node.without_lease);
  return node;
}

Result<void> NotifyNode(Transaction& transaction, std::string_view node) {
  return transaction.Notify({.kind = Notice::Kind::kNode, .name = std::string(node)});
}

using protocol::RankId;

std::set<RankId> IdsOf(const std::vector<protocol::AttachedRank>& ranks) {
  std::set<RankId> ids;
  for (const protocol::AttachedRank& rank : ranks) ids.insert(rank.name);
  return ids;
}

using Owners = std::map<RankId, std::string>;

// Returns the owners of all ranks in the pipelines of `ranks`, and of all ranks of the node.
Result<Owners> FindOwners(Transaction& transaction, std::string_view job, std::string_view node,
                          const std::set<RankId>& ranks) {
  const int first = ranks.empty() ? 0 : ranks.begin()->dp_rank;
  const int last = ranks.empty() ? -1 : ranks.rbegin()->dp_rank;
  PERSEUS_ASSIGN_OR_RETURN(
      Rows rows,
      // These are two statements, so that each uses its own index. With OR, SQLite would read all
      // ranks of the job.
      transaction.Run("SELECT dp_rank, pp_rank, tp_rank, node FROM node_ranks "
                      "WHERE job = $1 AND dp_rank >= $2 AND dp_rank <= $3 "
                      "UNION SELECT dp_rank, pp_rank, tp_rank, node FROM node_ranks "
                      "WHERE job = $1 AND node = $4",
                      {job, first, last, node}));
  Owners owners;
  for (Row& row : rows) {
    owners[{.dp_rank = static_cast<int>(row.Integer(0)),
            .pp_rank = static_cast<int>(row.Integer(1)),
            .tp_rank = static_cast<int>(row.Integer(2))}] = row.TakeText(3);
  }
  return owners;
}

Result<void> DeleteRank(Transaction& transaction, std::string_view job, const RankId& rank) {
  return RunAll(transaction,
                {{"DELETE FROM node_ranks WHERE job = $1 AND dp_rank = $2 AND pp_rank = $3 AND "
                  "tp_rank = $4",
                  {job, rank.dp_rank, rank.pp_rank, rank.tp_rank}}});
}

// Gives the node exactly these ranks.
Result<void> PutRanks(Transaction& transaction, std::string_view job, std::string_view node,
                      const std::set<RankId>& ranks, const Owners& owners) {
  for (const auto& [rank, owner] : owners) {
    if (owner != node || ranks.contains(rank)) continue;
    PERSEUS_RETURN_IF_ERROR(DeleteRank(transaction, job, rank));
  }
  for (const RankId& rank : ranks) {
    const auto owner = owners.find(rank);
    if (owner != owners.end() && owner->second == node) continue;
    PERSEUS_RETURN_IF_ERROR(transaction.Run(
        "INSERT INTO node_ranks (job, dp_rank, pp_rank, tp_rank, node) "
        "VALUES ($1, $2, $3, $4, $5) "
        "ON CONFLICT (job, dp_rank, pp_rank, tp_rank) DO UPDATE SET node = excluded.node",
        {job, rank.dp_rank, rank.pp_rank, rank.tp_rank, node}));
  }
  return {};
}

// Takes these ranks from another node. If no rank of this node is left, detaches the node.
Result<void> RemoveRanks(Transaction& transaction, std::string_view job, std::string_view other,
                         std::string_view its_ranks, const std::set<RankId>& taken) {
  PERSEUS_ASSIGN_OR_RETURN(auto left, protocol::ParseRanks(its_ranks));
  std::erase_if(left,
                [&taken](const protocol::AttachedRank& rank) { return taken.contains(rank.name); });
  const std::string text = protocol::FormatRanks(left);
  PERSEUS_RETURN_IF_ERROR(
      left.empty() ? transaction.Run("DELETE FROM nodes WHERE job = $1 AND node = $2", {job, other})
                   : transaction.Run("UPDATE nodes SET ranks = $3 WHERE job = $1 AND node = $2",
                                     {job, other, text}));
  return NotifyNode(transaction, other);
}

// Locks the nodes in the order in which Acknowledge changes them, so that the two functions cannot
// deadlock. Returns the ranks of each node.
Result<std::map<std::string, std::string>> LockNodes(
    const Database& database, Transaction& transaction, std::string_view job,
    const std::set<std::string, std::less<>>& nodes) {
  const std::string select = fmt::format("SELECT ranks FROM nodes WHERE job = $1 AND node = $2 {}",
                                         database.dialect().for_update);
  std::map<std::string, std::string> ranks;
  for (const std::string& node : nodes) {
    PERSEUS_ASSIGN_OR_RETURN(Rows row, transaction.Run(select, {job, node}));
    if (!row.empty()) ranks[node] = row.front().TakeText(0);
  }
  return ranks;
}

// Gives ranks of a job to a node. The job has to be locked.
struct Attaching {
  const Database& database;
  Transaction& transaction;
  std::string_view job;
  std::string_view node;

  // Returns the ranks that another node uses.
  Result<std::vector<HeldRank>> FindHeld(const std::set<RankId>& ids, const Owners& owners,
                                         const InUse& in_use) const {
    std::map<std::string, bool> users;
    std::vector<HeldRank> held;
    for (const RankId& id : ids) {
      const auto owner = owners.find(id);
      if (owner == owners.end() || owner->second == node) continue;
      const auto [user, is_new] = users.try_emplace(owner->second, false);
      if (is_new) {
        PERSEUS_ASSIGN_OR_RETURN(
            const Rows rows,
            transaction.Run("SELECT 1 FROM nodes WHERE job = $1 AND node = $2 AND "
                            "seen >= $3 AND ran >= $4",
                            {job, owner->second, in_use.silent_since, in_use.idle_since}));
        user->second = !rows.empty();
      }
      if (user->second) held.push_back({owner->second, id.dp_rank, id.pp_rank, id.tp_rank});
    }
    return held;
  }

  // Takes all ranks that are not in `kept` from the node.
  Result<void> Release(const std::set<RankId>& kept) const {
    PERSEUS_ASSIGN_OR_RETURN(const auto had,
                             LockNodes(database, transaction, job, {std::string(node)}));
    const auto own = had.find(std::string(node));
    if (own == had.end()) return {};
    PERSEUS_ASSIGN_OR_RETURN(const auto ranks, protocol::ParseRanks(own->second));
    std::set<RankId> gone;
    for (const protocol::AttachedRank& rank : ranks) {
      if (!kept.contains(rank.name)) gone.insert(rank.name);
    }
    if (gone.empty()) return {};
    for (const RankId& rank : gone) {
      PERSEUS_RETURN_IF_ERROR(DeleteRank(transaction, job, rank));
    }
    return RemoveRanks(transaction, job, node, own->second, gone);
  }

  // Gives the node exactly these ranks. Returns the other nodes that lose ranks.
  Result<std::vector<std::string>> Take(const std::set<RankId>& ids, const Owners& owners,
                                        std::string_view ranks, Milliseconds now) const {
    std::set<std::string, std::less<>> affected{std::string(node)};
    for (const RankId& id : ids) {
      if (const auto owner = owners.find(id); owner != owners.end()) affected.insert(owner->second);
    }
    PERSEUS_ASSIGN_OR_RETURN(auto had, LockNodes(database, transaction, job, affected));
    PERSEUS_RETURN_IF_ERROR(transaction.Run(
        "INSERT INTO nodes (job, node, ranks, seen, ran) VALUES ($1, $2, $3, $4, $4) "
        "ON CONFLICT (job, node) DO UPDATE SET ranks = excluded.ranks, seen = excluded.seen, "
        "ran = excluded.ran, running = -1, without_lease = 0",
        {job, node, ranks, now}));
    PERSEUS_RETURN_IF_ERROR(PutRanks(transaction, job, node, ids, owners));
    const auto own = had.extract(std::string(node));
    std::vector<std::string> losers;
    for (const auto& [other, its_ranks] : had) {
      PERSEUS_RETURN_IF_ERROR(RemoveRanks(transaction, job, other, its_ranks, ids));
      losers.push_back(other);
    }
    if (!own || own.mapped() != ranks) PERSEUS_RETURN_IF_ERROR(NotifyNode(transaction, node));
    return losers;
  }
};

}  // namespace

// A rank belongs to the node that attached it last, because a restarted job may run on other nodes.
Result<std::vector<HeldRank>> Store::AttachNode(std::string_view job, std::string_view node,
                                                std::string_view ranks, Milliseconds now,
                                                const InUse& in_use, const Author& by) {
  using Held = std::vector<HeldRank>;
  PERSEUS_ASSIGN_OR_RETURN(const auto attached, protocol::ParseRanks(ranks));
  const std::set<RankId> ids = IdsOf(attached);
  return Write<Held>(*database_, [&](Transaction& transaction) -> Result<Held> {
    PERSEUS_ASSIGN_OR_RETURN(const LockedJob locked, LockRunningJob(*database_, transaction, job));
    const Attaching attaching{*database_, transaction, job, node};
    PERSEUS_ASSIGN_OR_RETURN(const auto owners, FindOwners(transaction, job, node, ids));
    PERSEUS_ASSIGN_OR_RETURN(Held held, attaching.FindHeld(ids, owners, in_use));
    if (!held.empty()) {
      PERSEUS_RETURN_IF_ERROR(attaching.Release(ids));
      return held;
    }
    PERSEUS_ASSIGN_OR_RETURN(const auto losers, attaching.Take(ids, owners, ranks, now));
    for (const std::string& loser : losers) {
      PERSEUS_RETURN_IF_ERROR(
          AppendAudit(transaction, {.at = now,
                                    .action = "node.take",
                                    .job = std::string(job),
                                    .key = locked.key,
                                    .subject = fmt::format("node {}", node),
                                    .by = by,
                                    .before = fmt::format(R"({{"node":"{}"}})", loser),
                                    .after = fmt::format(R"({{"node":"{}"}})", node)}));
    }
    return held;
  });
}

Result<void> Store::DetachNode(std::string_view job, std::string_view node) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_RETURN_IF_ERROR(LockJob(*database_, transaction, job));
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows gone,
        transaction.Run("DELETE FROM nodes WHERE job = $1 AND node = $2 RETURNING node",
                        {job, node}));
    if (gone.empty()) return {};
    return NotifyNode(transaction, node);
  });
}

Result<std::vector<NodeRecord>> Store::ListNodesOfJob(std::string_view job) {
  return ReadAll(*database_,
                 fmt::format("SELECT {} FROM nodes WHERE job = $1 ORDER BY node", kNodeColumns),
                 {job}, NodeOf);
}

Result<std::vector<NodeRecord>> Store::ListJobsOfNode(std::string_view node) {
  return ReadAll(*database_,
                 fmt::format("SELECT {} FROM nodes JOIN jobs ON jobs.id = nodes.job "
                             "WHERE nodes.node = $1 ORDER BY jobs.number",
                             kNodeColumns),
                 {node}, NodeOf);
}

Result<std::vector<NodeClaim>> Store::ListNodes(std::string_view after, int limit) {
  return ReadAll(*database_,
                 "SELECT names.node, COALESCE(node_claims.seen, 0) FROM "
                 "(SELECT node FROM node_claims UNION SELECT node FROM nodes) AS names "
                 "LEFT JOIN node_claims ON node_claims.node = names.node "
                 "WHERE names.node > $1 ORDER BY names.node LIMIT $2",
                 {after, limit}, [](Row& row) {
                   NodeClaim claim;
                   row.Take(claim.node, claim.seen);
                   return claim;
                 });
}

Result<std::vector<std::string>> Store::ClaimNodes(std::vector<NodeClaim> claims, Milliseconds now,
                                                   Milliseconds silent_since) {
  if (claims.empty()) return std::vector<std::string>();
  // Sort, so that every call locks the names in the same order and two calls cannot deadlock.
  std::ranges::sort(claims, {}, &NodeClaim::node);
  std::vector<std::string> refused;
  const auto claim_all = [&](Transaction& transaction) -> Result<void> {
    refused.clear();
    for (const NodeClaim& claim : claims) {
      PERSEUS_ASSIGN_OR_RETURN(
          const Rows claimed,
          transaction.Run(
              "INSERT INTO node_claims (node, instance, seen) VALUES ($1, $2, $3) "
              "ON CONFLICT (node) DO UPDATE SET instance = excluded.instance, seen = excluded.seen "
              "WHERE node_claims.instance = excluded.instance OR node_claims.seen < $4 RETURNING "
              "node",
              {claim.node, claim.instance, now, silent_since}));
      if (claimed.empty()) refused.push_back(claim.node);
    }
    return {};
  };
  // A claim is valid for seconds, and its owner repeats it. So a claim may be lost in a crash of
  // the machine. Because the claim is not written to disk at once, attaching a node waits for the
  // disk only once.
  PERSEUS_RETURN_IF_ERROR(database_->Transact(claim_all, Durability::kInMemory));
  return refused;
}

Result<void> Store::ReleaseNode(const NodeClaim& claim) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    return RunAll(transaction, {{"DELETE FROM node_claims WHERE node = $1 AND instance = $2",
                                 {claim.node, claim.instance}}});
  });
}

Result<void> Store::Acknowledge(std::vector<NodeRecord> nodes) {
  // Sort, so that every call and AttachNode lock the nodes in the same order, and no two calls can
  // deadlock.
  std::ranges::sort(nodes, {},
                    [](const NodeRecord& node) { return std::tie(node.job, node.node); });
  const auto write = [&](Transaction& transaction) -> Result<void> {
    for (const NodeRecord& node : nodes) {
      PERSEUS_RETURN_IF_ERROR(transaction.Run(
          "UPDATE nodes SET acknowledged = CASE WHEN acknowledged < $3 THEN $3 ELSE acknowledged "
          "END, following = $4, since_step = $5, seen = $6, "
          "ran = CASE WHEN ran < $7 THEN $7 ELSE ran END, running = $8, without_lease = $9 "
          "WHERE job = $1 AND node = $2",
          {node.job, node.node, node.acknowledged, node.following, node.since_step, node.seen,
           node.ran, node.running, node.without_lease}));
    }
    return {};
  };
  return database_->Transact(write, Durability::kInMemory);
}

Result<bool> Store::PutZeusRank(std::string_view job, int rank, int position,
                                std::string_view body) {
  return Write<bool>(*database_, [&](Transaction& transaction) -> Result<bool> {
    PERSEUS_RETURN_IF_ERROR(LockRunningJob(*database_, transaction, job));
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows others,
        transaction.Run("SELECT 1 FROM zeus_ranks WHERE job = $1 AND position = $2 AND rank <> $3",
                        {job, position, rank}));
    if (!others.empty()) return false;
    PERSEUS_RETURN_IF_ERROR(transaction.Run(
        "INSERT INTO zeus_ranks (job, rank, position, body) VALUES ($1, $2, $3, $4) "
        "ON CONFLICT (job, rank) DO UPDATE SET position = excluded.position, body = excluded.body",
        {job, rank, position, body}));
    return true;
  });
}

Result<void> Store::ClearZeusRanks(std::string_view job) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_RETURN_IF_ERROR(LockRunningJob(*database_, transaction, job));
    return RunAll(transaction, {{"DELETE FROM zeus_ranks WHERE job = $1", {job}}});
  });
}

Result<ZeusRankRecord> Store::FindZeusRank(std::string_view job, int rank) {
  PERSEUS_ASSIGN_OR_RETURN(
      auto found, ReadOne(*database_,
                          "SELECT (SELECT COUNT(*) FROM zeus_ranks WHERE job = $1), "
                          "(SELECT body FROM zeus_ranks WHERE job = $1 AND rank = $2)",
                          {job, rank}, [](Row& row) {
                            return ZeusRankRecord{.ranks = row.Integer(0), .body = row.TakeText(1)};
                          }));
  return std::move(found).value();
}

}  // namespace perseus::store
