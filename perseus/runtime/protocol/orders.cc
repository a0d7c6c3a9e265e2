#include "perseus/runtime/protocol/orders.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/json_file.h"

namespace perseus::protocol {
namespace {

using json_file::Node;
using json_file::Throw;

// file -> clocks -> clock -> value; plans and server are not as deep.
constexpr int kOrdersJsonDepth = 4;
constexpr int kOrdersMostCount = 1'000'000;

KindClock ReadClock(const Node& node) {
  constexpr std::array<std::string_view, 4> kKeys{"rank", "chunk", "kind", "mhz"};
  node.RequireObject(kKeys);
  KindClock clock;
  clock.rank = node.Member("rank").Count(0, kOrdersMostCount, "a rank's number, from 0");
  clock.chunk = node.Member("chunk").Count(0, kOrdersMostCount, "a chunk's number, from 0");
  const Node kind_node = node.Member("kind");
  const std::string name = kind_node.Text();
  const std::optional<InstructionKind> kind = ParseInstructionKind(name);
  if (!kind || !IsComputation(*kind)) {
    Throw(
        "{} {} is not a computation (expected \"forward\", \"backward\", \"backward_input\", "
        "\"backward_weight\" or \"recompute\")",
        kind_node.path, Excerpt(name));
  }
  clock.kind = *kind;
  clock.frequency_mhz = node.Member("mhz").Count(1, kOrdersMostCount, "MHz, such as 1410");
  return clock;
}

// A path that leads out of the directory is somebody's mistake, or worse.
std::string ReadPlanPath(const Node& node) {
  std::string text = node.Text();
  const std::filesystem::path path(text);
  bool leads_out = text.empty() || path.is_absolute();
  for (const auto& part : path) leads_out = leads_out || part == "..";
  if (leads_out) {
    Throw("{} {} is not a path within the job's directory (expected one such as plans/7.json)",
          node.path, Excerpt(text));
  }
  return text;
}

// "12"; not "012", which would be the same one again.
int ReadPipeline(const Node& plans, const std::string& key) {
  int pipeline = 0;
  const char* end = key.data() + key.size();
  const auto [read, error] = std::from_chars(key.data(), end, pipeline);
  if (error != std::errc() || read != end || pipeline < 0 || pipeline > kOrdersMostCount ||
      fmt::to_string(pipeline) != key) {
    Throw("{} has {}, which is no pipeline's number (expected one such as \"0\")", plans.path,
          Excerpt(key));
  }
  return pipeline;
}

std::map<int, std::string> ReadPlans(const Node& node) {
  if (!node.value.is_object()) {
    Throw("{} is not an object (expected {{\"0\": \"plans/7.json\"}})", node.path);
  }
  std::map<int, std::string> plans;
  for (const auto& item : node.value.items()) {
    plans.emplace(ReadPipeline(node, item.key()), ReadPlanPath(node.Member(item.key())));
  }
  return plans;
}

ServerOrigin ReadOrigin(const Node& node) {
  constexpr std::array<std::string_view, 2> kKeys{"job", "version"};
  node.RequireObject(kKeys);
  return {node.Member("job").Text(),
          node.Member("version").Whole(1, json_file::kLargestWhole, "a number that grows")};
}

// Plans, clocks and own exclude each other.
void ReadWhatToDo(const Node& file, Orders& orders) {
  const bool has_plans = file.Has("plan") || file.Has("plans");
  if (has_plans && file.Has("clocks")) {
    Throw("there are both plan and clocks (leave one of them out)");
  }
  if (file.Has("own")) orders.own = file.Member("own").Flag();
  if (orders.own && (has_plans || file.Has("clocks"))) {
    Throw("there are plan or clocks, and own is true (leave one of them out)");
  }
  if (file.Has("plan")) orders.plan = ReadPlanPath(file.Member("plan"));
  if (file.Has("plans")) orders.plans = ReadPlans(file.Member("plans"));
  if (!file.Has("clocks")) return;
  const Node clocks = file.Member("clocks");
  const std::size_t count = clocks.ListSize();
  orders.clocks.reserve(count);
  for (std::size_t i = 0; i < count; ++i) orders.clocks.push_back(ReadClock(clocks[i]));
}

Orders ReadOrdersFrom(const Node& file) {
  constexpr std::array<std::string_view, 10> kKeys{
      "perseus_orders", "version", "from_step", "until_step", "record",
      "plan",           "plans",   "clocks",    "own",        "server"};
  file.RequireObject(kKeys);
  if (file.Member("perseus_orders").value != 1) {
    Throw(
        "perseus_orders is not 1, which is what this perseus reads (install the same version "
        "everywhere)");
  }
  Orders orders;
  orders.version = file.Member("version").Whole(1, json_file::kLargestWhole, "a number that grows");
  orders.from_step = file.Member("from_step").Whole(0, json_file::kLargestWhole, "a step's number");
  orders.record = file.Member("record").Flag();
  if (file.Has("until_step")) {
    orders.until_step = file.Member("until_step").Whole(1, json_file::kLargestWhole, "a step's number");
    if (*orders.until_step <= orders.from_step) {
      Throw("until_step {} is not after from_step {} (leave it out for orders that last)",
            *orders.until_step, orders.from_step);
    }
  }
  ReadWhatToDo(file, orders);
  if (file.Has("server")) orders.server = ReadOrigin(file.Member("server"));
  return orders;
}

std::filesystem::path OrdersPath(const std::filesystem::path& job_directory) {
  return job_directory / "orders.json";
}

Result<std::optional<Orders>> ReadIfThere(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::optional<Orders>();
  const Result<std::string> text = ReadFile(path);
  if (!text) return Fail(text);
  Result<Orders> orders = ParseOrders(*text, path.string());
  if (!orders) return Fail(orders);
  return std::optional<Orders>(*std::move(orders));
}

}  // namespace

std::filesystem::path OrdersBeforePath(const std::filesystem::path& job_directory) {
  return job_directory / "orders-before.json";
}

std::string FormatOrders(const Orders& orders) {
  nlohmann::ordered_json file{{"perseus_orders", 1},
                              {"version", orders.version},
                              {"from_step", orders.from_step},
                              {"record", orders.record}};
  if (orders.until_step) file["until_step"] = *orders.until_step;
  if (orders.own) file["own"] = true;
  if (!orders.plan.empty()) file["plan"] = orders.plan;
  if (!orders.plans.empty()) {
    auto& plans = file["plans"] = nlohmann::ordered_json::object();
    for (const auto& [pipeline, plan] : orders.plans) plans[fmt::to_string(pipeline)] = plan;
  }
  if (!orders.clocks.empty()) {
    auto clocks = nlohmann::ordered_json::array();
    for (const KindClock& clock : orders.clocks) {
      clocks.push_back({{"rank", clock.rank},
                        {"chunk", clock.chunk},
                        {"kind", Name(clock.kind)},
                        {"mhz", clock.frequency_mhz}});
    }
    file["clocks"] = std::move(clocks);
  }
  if (orders.server) {
    file["server"] = {{"job", orders.server->job}, {"version", orders.server->version}};
  }
  return file.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<Orders> ParseOrders(std::string_view text, std::string_view name) {
  return json_file::Read(text, name, kOrdersJsonDepth, ReadOrdersFrom);
}

Result<std::optional<Orders>> ReadOrders(const std::filesystem::path& job_directory) {
  return ReadIfThere(OrdersPath(job_directory));
}

Result<std::optional<Orders>> ReadOrdersBefore(const std::filesystem::path& job_directory) {
  return ReadIfThere(OrdersBeforePath(job_directory));
}

Result<void> WriteOrders(const std::filesystem::path& job_directory, const Orders& orders) {
  return WriteFileAtomically(OrdersPath(job_directory), FormatOrders(orders));
}

}  // namespace perseus::protocol
