// `perseus audit` lists the records of changes.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "perseus/base/json_text.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/flags/server_flags.h"
#include "perseus/cli/terminal/table.h"
#include "perseus/cli/verbs/verbs.h"

namespace perseus::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kAuditAbout =
    "List who changed what: targets, profiles, stragglers, assignments, jobs and tokens\n"
    "(docs/identity.md).";
constexpr const char* kAuditExamples =
    "  perseus audit --job gpt3-run7\n"
    "  perseus audit --who ann --action token\n"
    "  perseus audit --all --json > audit.jsonl";
constexpr int kPage = 1000;

struct AuditFlags {
  ServerFlags server;
  std::string job;
  std::string who;
  std::string action;
  int limit = 50;
  bool all = false;
  bool as_json = false;
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

// Calls `take` for each record. With a limit, takes the newest `limit` records, newest first.
// Without a limit, takes all records, oldest first.
template <typename Take>
Result<void> ForEachRecord(ServerClient& server, const AuditFlags& flags, const Take& take) {
  std::optional<std::int64_t> from;
  int left = flags.limit;
  while (true) {
    const int page = flags.all ? kPage : std::min(left, kPage);
    const std::string_view order = flags.all ? "oldest" : "newest";
    PERSEUS_ASSIGN_OR_RETURN(const auto answer, server.Get(PageTarget(flags, order, page, from)));
    for (const ordered_json& record : answer.at("records")) take(record);
    left -= page;
    if (!answer.contains("next") || (!flags.all && left <= 0)) return {};
    from = answer["next"].get<std::int64_t>();
  }
}

std::string BriefValue(const ordered_json& value) {
  constexpr std::size_t kMostBytes = 60;
  if (value.is_null()) return "";
  std::string text = JsonText(value);
  if (text.size() > kMostBytes) text = text.substr(0, kMostBytes) + "…";
  return text;
}

Result<void> List(const Streams& streams, ServerClient& server, const AuditFlags& flags) {
  Table table(
      {"number", "at", "who", "from", "action", "job", "subject", "before", "after", "reason"});
  std::string lines;
  const auto listed = ForEachRecord(server, flags, [&](const ordered_json& record) {
    if (flags.as_json) {
      lines += JsonText(record) + "\n";
      return;
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
  });
  PERSEUS_RETURN_IF_ERROR(listed);
  return streams.Print(flags.as_json ? lines : table.Format());
}

}  // namespace

Verb AddAuditVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<AuditFlags>(program, "audit", kAuditAbout, kAuditExamples);
  add("--job", flags->job, "JOB", "Only of this job (key or id)");
  add("--who", flags->who, "WHO", "Only by this token (name or id)");
  add("--action", flags->action, "ACTION",
      "Only this action, such as job.target, or its first word, such as token");
  add("--limit", flags->limit, "N", "How many records, newest first (default: 50)",
      WholeNumberIn({1, 1'000'000}))
      ->excludes(verb->add_flag("--all", flags->all, "All records, oldest first"));
  verb->add_flag("--json", flags->as_json, "Print a JSON object per line");
  AddServerFlags(*verb, flags->server, "operator");
  return {verb, [flags = flags](const Streams& streams) {
            return WithServer(flags->server,
                              [&](ServerClient& server) { return List(streams, server, *flags); });
          }};
}

}  // namespace perseus::cli
