// `perseus audit` lists who changed what, and verifies that nobody changed this list.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/number.h"
#include "perseus/cli/flag_checks.h"
#include "perseus/cli/server_flags.h"
#include "perseus/cli/standard_output.h"
#include "perseus/cli/table.h"
#include "perseus/cli/verbs.h"
#include "perseus/cluster/store/audit.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kAuditAbout =
    "List who changed what: targets, profiles, stragglers, assignments, jobs and tokens\n"
    "(docs/identity.md). With --verify, check that no record was edited, inserted or deleted.";
constexpr const char* kAuditExamples =
    "Examples:\n"
    "  perseus audit --job gpt3-run7\n"
    "  perseus audit --who ann --action token\n"
    "  perseus audit --all --json > audit.jsonl\n"
    "  perseus audit --verify --expect 1042:5ab3…    # from the server's log";
constexpr int kPage = 1000;
constexpr std::size_t kHashLength = 64;  // SHA-256 in hexadecimal digits.

struct AuditFlags {
  ServerFlags server;
  std::string job;
  std::string who;
  std::string action;
  int limit = 50;
  bool all = false;
  bool as_json = false;
  bool verify = false;
  std::string expect;
};

std::string PageTarget(const AuditFlags& flags, std::string_view order, int limit,
                       std::optional<std::int64_t> from) {
  std::string target = fmt::format("/v1/audit?order={}&limit={}", order, limit);
  for (const auto& [name, value] :
       {std::pair{"job", &flags.job}, {"who", &flags.who}, {"action", &flags.action}}) {
    if (!value->empty()) target += fmt::format("&{}={}", name, http::PercentEncoded(*value));
  }
  if (from) target += fmt::format("&{}={}", order == "newest" ? "before" : "after", *from);
  return target;
}

// Calls `take` for each record: the newest `limit` ones first, or all from the oldest on. Returns
// the head of the trail.
template <typename Take>
Result<ordered_json> ForEachRecord(const AuditFlags& flags, const Take& take) {
  PERSEUS_ASSIGN_OR_RETURN(auto server, ServerClient::Connect(flags.server));
  const bool is_whole = flags.all || flags.verify;
  std::optional<std::int64_t> from;
  int left = flags.limit;
  while (true) {
    const int page = is_whole ? kPage : std::min(left, kPage);
    const std::string_view order = is_whole ? "oldest" : "newest";
    PERSEUS_ASSIGN_OR_RETURN(const auto answer, server.Get(PageTarget(flags, order, page, from)));
    for (const ordered_json& record : answer.at("records")) {
      PERSEUS_RETURN_IF_ERROR(take(record));
    }
    left -= page;
    if (!answer.contains("next") || (!is_whole && left <= 0)) return answer.at("head");
    from = answer["next"].get<std::int64_t>();
  }
}

std::string BriefValue(const ordered_json& value) {
  constexpr std::size_t kMostBytes = 60;
  if (value.is_null()) return "";
  std::string text = value.dump();
  if (text.size() > kMostBytes) text = text.substr(0, kMostBytes) + "…";
  return text;
}

Result<void> List(const Streams& streams, const AuditFlags& flags) {
  Table table(
      {"number", "at", "who", "from", "action", "job", "subject", "before", "after", "reason"});
  std::string lines;
  const auto listed = ForEachRecord(flags, [&](const ordered_json& record) -> Result<void> {
    if (flags.as_json) {
      lines += record.dump() + "\n";
      return {};
    }
    const std::string name = record.at("name");
    const std::string id = record.at("who");
    std::string who = record.at("role");
    if (!name.empty()) who = id.empty() ? name : fmt::format("{} ({})", name, id);
    if (name.empty() && !id.empty()) who = id;
    table.AddRow({std::to_string(record.at("number").get<std::int64_t>()), record.at("at"), who,
                  record.at("peer"), record.at("action"), record.at("key"), record.at("subject"),
                  BriefValue(record.at("before")), BriefValue(record.at("after")),
                  record.at("reason")});
    return {};
  });
  if (!listed) return Fail(listed);
  return streams.Print(flags.as_json ? lines : table.Format());
}

std::string TextOf(const ordered_json& value) { return value.is_null() ? "" : value.dump(); }

store::AuditRecord RecordOf(const ordered_json& json) {
  return {.number = json.at("number"),
          .at = json.at("at_ms"),
          .action = json.at("action"),
          .job = json.at("job"),
          .key = json.at("key"),
          .subject = json.at("subject"),
          .by = {.id = json.at("who"),
                 .name = json.at("name"),
                 .role = json.at("role"),
                 .peer = json.at("peer"),
                 .trace = json.at("trace"),
                 .reason = json.at("reason")},
          .before = TextOf(json.at("before")),
          .after = TextOf(json.at("after")),
          .hash = json.at("hash")};
}

// "1042:5ab3…": the number and the hash of a record, from the server's log.
Result<std::optional<store::AuditHead>> ExpectedHead(const std::string& text) {
  if (text.empty()) return std::optional<store::AuditHead>();
  store::AuditHead head;
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto number = ParseNumber<std::int64_t>(std::string_view(text).substr(0, colon));
  const std::string_view hash = std::string_view(text).substr(std::min(colon + 1, text.size()));
  const bool is_hash = hash.size() == kHashLength &&
                       hash.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!number || !is_hash) {
    return Fail(
        "--expect {} is not NUMBER:HASH with a hash of {} digits (take both from the server's log)",
        Excerpt(text), kHashLength);
  }
  head.number = *number;
  head.hash = hash;
  return std::optional(std::move(head));
}

Result<void> Verify(const Streams& streams, const AuditFlags& flags) {
  if (!flags.job.empty() || !flags.who.empty() || !flags.action.empty()) {
    return Fail("--verify checks the whole trail (leave out --job, --who and --action)");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto expected, ExpectedHead(flags.expect));
  store::AuditHead last;
  bool was_found = !expected;
  const auto head = ForEachRecord(flags, [&](const ordered_json& json) -> Result<void> {
    const store::AuditRecord record = RecordOf(json);
    if (record.number != last.number + 1) {
      return FailAs(ErrorKind::kUnreachable,
                    "the audit trail has a gap: record {} follows record {} (restore the database "
                    "from a backup, and find out who can write to it)",
                    record.number, last.number);
    }
    if (store::HashOfRecord(record, last.hash) != record.hash) {
      return FailAs(ErrorKind::kUnreachable,
                    "audit record {} was edited, or the one before it was (compare with a backup, "
                    "and find out who can write to the database)",
                    record.number);
    }
    last = {.number = record.number, .hash = record.hash};
    if (expected && expected->number == last.number) {
      if (expected->hash != last.hash) {
        return FailAs(ErrorKind::kUnreachable,
                      "record {} has another hash than expected: the trail was written again "
                      "(compare with a backup)",
                      last.number);
      }
      was_found = true;
    }
    return {};
  });
  if (!head) return Fail(head);
  // The head is older than the records, because others may append at any time.
  const auto newest = head->at("number").get<std::int64_t>();
  const bool is_head_wrong = newest == last.number && head->at("hash") != last.hash;
  if (newest > last.number || is_head_wrong || !was_found) {
    return FailAs(
        ErrorKind::kUnreachable,
        "the newest audit records are missing: the last one is {}, but there was a "
        "record {} (restore the database from a backup, and find out who can write to it)",
        last.number, std::max(newest, expected ? expected->number : 0));
  }
  if (flags.as_json) {
    return streams.Print(ordered_json{{"number", last.number}, {"hash", last.hash}}.dump() + "\n");
  }
  return streams.Print(
      fmt::format("{} records, without a gap and without an edit; the newest is {}:{}\n",
                  last.number, last.number, last.hash));
}

}  // namespace

Verb AddAuditVerb(CLI::App& program) {
  auto flags = std::make_shared<AuditFlags>();
  CLI::App* verb = program.add_subcommand("audit", kAuditAbout);
  verb->footer(kAuditExamples);
  verb->add_option("--job", flags->job, "Only of this job (key or id)")->type_name("JOB");
  verb->add_option("--who", flags->who, "Only by this token (name or id)")->type_name("WHO");
  verb->add_option("--action", flags->action,
                   "Only this action, such as job.target, or its first word, such as token")
      ->type_name("ACTION");
  CLI::Option* limit =
      verb->add_option("--limit", flags->limit, "How many records, newest first (default: 50)");
  limit->check(WholeNumberIn({1, 1'000'000}))->type_name("N");
  limit->excludes(verb->add_flag("--all", flags->all, "All records, oldest first"));
  verb->add_flag(
      "--json", flags->as_json,
      "Print a JSON object per line (with --verify: the newest record's number and hash)");
  auto* verify = verb->add_flag("--verify", flags->verify,
                                "Check that no record was edited, inserted or deleted");
  limit->excludes(verify);
  verb->add_option("--expect", flags->expect,
                   "With --verify: the number and hash of a record, from the server's log")
      ->needs(verify)
      ->type_name("NUMBER:HASH");
  AddServerFlags(*verb, flags->server, "operator");
  return {verb, [flags](const Streams& streams) {
            return ReadingAnswers(
                [&] { return flags->verify ? Verify(streams, *flags) : List(streams, *flags); });
          }};
}

}  // namespace perseus::cli
