// Nodes, stragglers, and what clients of Zeus say of their ranks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>

#include "perseus/cluster/store/sql_store.h"

namespace perseus::store {
namespace {

constexpr std::string_view kNodeColumns =
    "nodes.job, nodes.node, nodes.ranks, nodes.acknowledged, nodes.following, nodes.since_step, "
    "nodes.seen";

NodeRecord NodeOf(Row& row) {
  return {.job = row.TakeText(0),
          .node = row.TakeText(1),
          .ranks = row.TakeText(2),
          .acknowledged = row.Integer(3),
          .following = row.Integer(4),
          .since_step = row.Integer(5),
          .seen = row.Integer(6)};
}

Result<void> TellNode(Transaction& transaction, std::string_view node) {
  return transaction.Notify({.kind = Notice::Kind::kNode, .name = std::string(node)});
}

using nlohmann::ordered_json;

// Along the job: pipeline, rank, tensor rank.
using Place = std::array<std::int64_t, 3>;

Place PlaceOf(const ordered_json& rank) {
  const auto number = [&rank](const char* key) {
    const auto found = rank.find(key);
    return found != rank.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  return {number("dp_rank"), number("pp_rank"), number("tp_rank")};
}

Result<std::set<Place>> ParsePlaces(std::string_view ranks) {
  const auto list = ordered_json::parse(ranks, nullptr, false);
  if (!list.is_array()) return Fail("a node's ranks are no list (expected a JSON array)");
  std::set<Place> places;
  for (const ordered_json& rank : list) places.insert(PlaceOf(rank));
  return places;
}

using Owners = std::map<Place, std::string>;

// Who has which rank of these pipelines, and what else the node has.
Result<Owners> FindOwners(Transaction& transaction, std::string_view job, std::string_view node,
                          const std::set<Place>& places) {
  const std::int64_t first = places.empty() ? 0 : (*places.begin())[0];
  const std::int64_t last = places.empty() ? -1 : (*places.rbegin())[0];
  PERSEUS_ASSIGN_OR_RETURN(
      Rows rows,
      transaction.Run("SELECT pipeline, rank, tp_rank, node FROM node_ranks "
                      "WHERE job = $1 AND ((pipeline >= $2 AND pipeline <= $3) OR node = $4)",
                      {job, first, last, node}));
  Owners owners;
  for (Row& row : rows) {
    owners[{row.Integer(0), row.Integer(1), row.Integer(2)}] = row.TakeText(3);
  }
  return owners;
}

// The node has these ranks, and no others.
Result<void> PutPlaces(Transaction& transaction, std::string_view job, std::string_view node,
                       const std::set<Place>& places, const Owners& owners) {
  for (const auto& [place, owner] : owners) {
    if (owner != node || places.contains(place)) continue;
    PERSEUS_RETURN_IF_ERROR(transaction.Run(
        "DELETE FROM node_ranks WHERE job = $1 AND pipeline = $2 AND rank = $3 AND tp_rank = "
        "$4",
        {job, place[0], place[1], place[2]}));
  }
  for (const Place& place : places) {
    const auto owner = owners.find(place);
    if (owner != owners.end() && owner->second == node) continue;
    PERSEUS_RETURN_IF_ERROR(transaction.Run(
        "INSERT INTO node_ranks (job, pipeline, rank, tp_rank, node) "
        "VALUES ($1, $2, $3, $4, $5) "
        "ON CONFLICT (job, pipeline, rank, tp_rank) DO UPDATE SET node = excluded.node",
        {job, place[0], place[1], place[2], node}));
  }
  return {};
}

// Another node has these ranks no more; without any, it is not attached.
Result<void> TakeFrom(Transaction& transaction, std::string_view job, std::string_view other,
                      std::string_view ranks, const std::set<Place>& places) {
  auto left = ordered_json::array();
  for (const ordered_json& rank : ordered_json::parse(ranks, nullptr, false)) {
    if (!places.contains(PlaceOf(rank))) left.push_back(rank);
  }
  const std::string text = left.dump();
  PERSEUS_RETURN_IF_ERROR(
      left.empty() ? transaction.Run("DELETE FROM nodes WHERE job = $1 AND node = $2", {job, other})
                   : transaction.Run("UPDATE nodes SET ranks = $3 WHERE job = $1 AND node = $2",
                                     {job, other, text}));
  return TellNode(transaction, other);
}

}  // namespace

// Each rank is on one node, the last that attached it: a job that is started again may be so on
// other nodes.
Result<void> SqlStore::AttachNode(std::string_view job, std::string_view node,
                                  std::string_view ranks, Milliseconds now) {
  PERSEUS_ASSIGN_OR_RETURN(const auto places, ParsePlaces(ranks));
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_RETURN_IF_ERROR(LockRunningJob(transaction, job));
    PERSEUS_ASSIGN_OR_RETURN(const auto owners, FindOwners(transaction, job, node, places));
    std::set<std::string, std::less<>> concerned{std::string(node)};
    for (const Place& place : places) {
      if (const auto owner = owners.find(place); owner != owners.end()) {
        concerned.insert(owner->second);
      }
    }
    PERSEUS_ASSIGN_OR_RETURN(auto had, LockNodes(transaction, job, concerned));
    PERSEUS_RETURN_IF_ERROR(transaction.Run(
        "INSERT INTO nodes (job, node, ranks, seen) VALUES ($1, $2, $3, $4) "
        "ON CONFLICT (job, node) DO UPDATE SET ranks = excluded.ranks, seen = excluded.seen",
        {job, node, ranks, now}));
    if (auto put = PutPlaces(transaction, job, node, places, owners); !put) return put;
    const auto own = had.extract(std::string(node));
    for (const auto& [other, its_ranks] : had) {
      if (auto taken = TakeFrom(transaction, job, other, its_ranks, places); !taken) return taken;
    }
    if (own && own.mapped() == ranks) return {};
    return TellNode(transaction, node);
  });
}

// In the order in which Acknowledge changes them, so that neither waits for the other for ever.
Result<std::map<std::string, std::string>> SqlStore::LockNodes(
    Transaction& transaction, std::string_view job,
    const std::set<std::string, std::less<>>& nodes) const {
  const std::string select = fmt::format("SELECT ranks FROM nodes WHERE job = $1 AND node = $2 {}",
                                         database_->dialect().for_update);
  std::map<std::string, std::string> ranks;
  for (const std::string& node : nodes) {
    PERSEUS_ASSIGN_OR_RETURN(Rows row, transaction.Run(select, {job, node}));
    if (!row.empty()) ranks[node] = row.front().TakeText(0);
  }
  return ranks;
}

Result<void> SqlStore::DetachNode(std::string_view job, std::string_view node) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_RETURN_IF_ERROR(LockJob(transaction, job));
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows gone,
        transaction.Run("DELETE FROM nodes WHERE job = $1 AND node = $2 RETURNING node",
                        {job, node}));
    if (gone.empty()) return {};
    return TellNode(transaction, node);
  });
}

Result<std::vector<NodeRecord>> SqlStore::NodesOf(std::string_view job) {
  return ReadAll(fmt::format("SELECT {} FROM nodes WHERE job = $1 ORDER BY node", kNodeColumns),
                 {job}, NodeOf);
}

Result<std::int64_t> SqlStore::CountNodesSilentSince(std::string_view job, Milliseconds time) {
  auto count = ReadOne("SELECT COUNT(*) FROM nodes WHERE job = $1 AND seen < $2", {job, time},
                       [](Row& row) { return row.Integer(0); });
  if (!count) return Fail(count);
  return **count;
}

Result<std::vector<NodeRecord>> SqlStore::JobsOf(std::string_view node) {
  return ReadAll(fmt::format("SELECT {} FROM nodes JOIN jobs ON jobs.id = nodes.job "
                             "WHERE nodes.node = $1 ORDER BY jobs.number",
                             kNodeColumns),
                 {node}, NodeOf);
}

Result<std::vector<std::string>> SqlStore::ClaimNodes(const std::vector<NodeClaim>& claims,
                                                      Milliseconds now, Milliseconds silent_since) {
  if (claims.empty()) return std::vector<std::string>();
  // So that two of these never wait for each other.
  std::vector<const NodeClaim*> sorted;
  for (const NodeClaim& claim : claims) sorted.push_back(&claim);
  std::ranges::sort(sorted, {},
                    [](const NodeClaim* claim) { return std::string_view(claim->node); });
  using Nodes = std::vector<std::string>;
  return Write<Nodes>([&](Transaction& transaction) -> Result<Nodes> {
    Nodes refused;
    for (const NodeClaim* claim : sorted) {
      PERSEUS_ASSIGN_OR_RETURN(
          const Rows claimed,
          transaction.Run(
              "INSERT INTO node_claims (node, instance, seen) VALUES ($1, $2, $3) "
              "ON CONFLICT (node) DO UPDATE SET instance = excluded.instance, seen = excluded.seen "
              "WHERE node_claims.instance = excluded.instance OR node_claims.seen < $4 RETURNING "
              "node",
              {claim->node, claim->instance, now, silent_since}));
      if (claimed.empty()) refused.push_back(claim->node);
    }
    return refused;
  });
}

Result<void> SqlStore::ReleaseNode(const NodeClaim& claim) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    return RunSteps(transaction, {{"DELETE FROM node_claims WHERE node = $1 AND instance = $2",
                                   {claim.node, claim.instance}}});
  });
}

Result<void> SqlStore::Acknowledge(const std::vector<NodeRecord>& nodes) {
  // So that two of these never wait for each other, nor for AttachNode.
  std::vector<const NodeRecord*> sorted;
  for (const NodeRecord& node : nodes) sorted.push_back(&node);
  std::ranges::sort(sorted, {},
                    [](const NodeRecord* node) { return std::tie(node->job, node->node); });
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    for (const NodeRecord* node : sorted) {
      PERSEUS_RETURN_IF_ERROR(transaction.Run(
          "UPDATE nodes SET acknowledged = CASE WHEN acknowledged < $3 THEN $3 ELSE acknowledged "
          "END, following = $4, since_step = $5, seen = $6 WHERE job = $1 AND node = $2",
          {node->job, node->node, node->acknowledged, node->following, node->since_step,
           node->seen}));
    }
    return {};
  });
}

Result<void> SqlStore::PutStraggler(const StragglerRecord& straggler, Milliseconds now) {
  if (!std::isfinite(straggler.slowdown) || straggler.slowdown < 1) {
    return Fail("a slowdown of {} is none (expected 1 or more, such as 1.25)", straggler.slowdown);
  }
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    if (const auto locked = LockRunningJob(transaction, straggler.job); !locked) {
      return Fail(locked);
    }
    // The same of what holds, and for longer: nothing changes now.
    PERSEUS_ASSIGN_OR_RETURN(
        const auto put_off,
        transaction.Run(
            "UPDATE stragglers SET expires = $5 WHERE job = $1 AND pipeline = $2 AND source = $3 "
            "AND slowdown = $4 AND starts <= $7 AND $6 <= $7 AND (expires = 0 OR expires > $7) "
            "AND ($5 = 0 OR (expires <> 0 AND expires <= $5)) RETURNING job",
            {straggler.job, straggler.pipeline, straggler.source, straggler.slowdown,
             straggler.expires, straggler.starts, now}));
    if (!put_off.empty()) return {};
    PERSEUS_RETURN_IF_ERROR(transaction.Run(
        "INSERT INTO stragglers (job, pipeline, source, slowdown, starts, expires) "
        "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (job, pipeline, source) DO UPDATE SET "
        "slowdown = excluded.slowdown, starts = excluded.starts, expires = excluded.expires",
        {straggler.job, straggler.pipeline, straggler.source, straggler.slowdown, straggler.starts,
         straggler.expires}));
    return MarkChanged(transaction, straggler.job, now);
  });
}

Result<bool> SqlStore::DeleteStraggler(std::string_view job, int pipeline, std::string_view source,
                                       Milliseconds now) {
  return Write<bool>([&](Transaction& transaction) -> Result<bool> {
    PERSEUS_RETURN_IF_ERROR(LockJob(transaction, job));
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows gone,
        transaction.Run(
            "DELETE FROM stragglers WHERE job = $1 AND pipeline = $2 AND source = $3 RETURNING job",
            {job, pipeline, source}));
    if (gone.empty()) return false;
    PERSEUS_RETURN_IF_ERROR(MarkChanged(transaction, job, now));
    return true;
  });
}

Result<std::vector<StragglerRecord>> SqlStore::Stragglers(std::string_view job) {
  return ReadAll(
      "SELECT job, pipeline, source, slowdown, starts, expires FROM stragglers WHERE job = $1 "
      "ORDER BY pipeline, source",
      {job}, [](Row& row) {
        return StragglerRecord{.job = row.TakeText(0),
                               .pipeline = static_cast<int>(row.Integer(1)),
                               .source = row.TakeText(2),
                               .slowdown = row.Real(3),
                               .starts = row.Integer(4),
                               .expires = row.Integer(5)};
      });
}

Result<bool> SqlStore::PutRank(std::string_view job, int rank, int place, std::string_view body) {
  return Write<bool>([&](Transaction& transaction) -> Result<bool> {
    PERSEUS_RETURN_IF_ERROR(LockRunningJob(transaction, job));
    PERSEUS_ASSIGN_OR_RETURN(
        const Rows others,
        transaction.Run("SELECT 1 FROM ranks WHERE job = $1 AND place = $2 AND rank <> $3",
                        {job, place, rank}));
    if (!others.empty()) return false;
    PERSEUS_RETURN_IF_ERROR(transaction.Run(
        "INSERT INTO ranks (job, rank, place, body) VALUES ($1, $2, $3, $4) ON CONFLICT (job, "
        "rank) "
        "DO UPDATE SET place = excluded.place, body = excluded.body",
        {job, rank, place, body}));
    return true;
  });
}

Result<void> SqlStore::ClearRanks(std::string_view job) {
  return database_->Transact([&](Transaction& transaction) -> Result<void> {
    PERSEUS_RETURN_IF_ERROR(LockRunningJob(transaction, job));
    return RunSteps(transaction, {{"DELETE FROM ranks WHERE job = $1", {job}}});
  });
}

Result<Store::Registered> SqlStore::FindRank(std::string_view job, int rank) {
  auto found = ReadOne(
      "SELECT (SELECT COUNT(*) FROM ranks WHERE job = $1), "
      "(SELECT body FROM ranks WHERE job = $1 AND rank = $2)",
      {job, rank},
      [](Row& row) { return Registered{.ranks = row.Integer(0), .body = row.TakeText(1)}; });
  if (!found) return Fail(found);
  return *std::move(*found);
}

}  // namespace perseus::store
