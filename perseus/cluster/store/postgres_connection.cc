#include "perseus/cluster/store/postgres_connection.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "perseus/base/wording.h"

namespace perseus::store {
namespace {

// Type ids from pg_type. They never change.
constexpr Oid kInt8 = 20;
constexpr Oid kInt4 = 23;
constexpr Oid kText = 25;
constexpr Oid kFloat8 = 701;

constexpr int kBinary = 1;
constexpr int kAsText = 0;

// The default settings, which the address may override. Each side closes the connection about 20 s
// after the network fails. (The default of Linux is two hours or more.) The database server must do
// so, too, because this program may have locked a job for which all other replicas wait.
constexpr std::pair<const char*, const char*> kDefaults[] = {
    {"connect_timeout", "5"},
    {"keepalives_idle", "10"},
    {"keepalives_interval", "5"},
    {"keepalives_count", "2"},
    {"tcp_user_timeout", "20000"},
    {"target_session_attrs", "read-write"},
    {"options",
     "-c idle_in_transaction_session_timeout=20s -c tcp_keepalives_idle=10 "
     "-c tcp_keepalives_interval=5 -c tcp_keepalives_count=2 -c tcp_user_timeout=20s"},
};

// Returns the first line of a message of libpq. Further lines only add detail.
std::string FirstLine(std::string_view text) { return Explained(text.substr(0, text.find('\n'))); }

// Parameters in PostgreSQL's binary format. In this format, a text needs no copy and no terminating
// byte.
class BoundParameters {
 public:
  BoundParameters(Parameters parameters) {
    numbers_.reserve(parameters.size());  // Pointers to its elements have to stay valid.
    for (const Parameter& parameter : parameters) Add(parameter);
  }
  int count() const { return static_cast<int>(types_.size()); }
  const Oid* types() const { return types_.data(); }
  const char* const* values() const { return values_.data(); }
  const int* lengths() const { return lengths_.data(); }
  const int* formats() const { return formats_.data(); }

 private:
  using Bytes = std::array<char, 8>;

  void Add(const Parameter& parameter) {
    if (const auto* integer = std::get_if<std::int64_t>(&parameter)) {
      AddNumber(kInt8, static_cast<std::uint64_t>(*integer));
    } else if (const auto* real = std::get_if<double>(&parameter)) {
      AddNumber(kFloat8, std::bit_cast<std::uint64_t>(*real));
    } else if (const auto* text = std::get_if<std::string_view>(&parameter)) {
      // A null pointer would be NULL.
      Add(kText, text->empty() ? "" : text->data(), static_cast<int>(text->size()));
    } else {
      Add(0, nullptr, 0);
    }
  }
  void AddNumber(Oid type, std::uint64_t number) {
    Bytes& bytes = numbers_.emplace_back();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(number >> (56 - 8 * i));
    }
    Add(type, bytes.data(), static_cast<int>(bytes.size()));
  }
  void Add(Oid type, const char* value, int length) {
    types_.push_back(type);
    values_.push_back(value);
    lengths_.push_back(length);
    formats_.push_back(kBinary);
  }

  std::vector<Bytes> numbers_;
  std::vector<Oid> types_;
  std::vector<const char*> values_;
  std::vector<int> lengths_;
  std::vector<int> formats_;
};

template <typename Number>
Number Parse(std::string_view text) {
  Number number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Value ValueAt(const PGresult* result, int row, int column) {
  if (::PQgetisnull(result, row, column) != 0) return std::monostate();
  const std::string_view text(::PQgetvalue(result, row, column),
                              static_cast<std::size_t>(::PQgetlength(result, row, column)));
  switch (::PQftype(result, column)) {
    case kInt8:
    case kInt4:
      return Parse<std::int64_t>(text);
    case kFloat8:
      return Parse<double>(text);
    default:
      return std::string(text);
  }
}

Rows RowsOf(const PGresult* result) {
  Rows rows;
  for (int row = 0; row < ::PQntuples(result); ++row) {
    std::vector<Value> values;
    const int columns = ::PQnfields(result);
    values.reserve(static_cast<std::size_t>(columns));
    for (int column = 0; column < columns; ++column) {
      values.push_back(ValueAt(result, row, column));
    }
    rows.emplace_back(std::move(values));
  }
  return rows;
}

struct FreeOptions {
  void operator()(PQconninfoOption* options) const { ::PQconninfoFree(options); }
};

}  // namespace

Result<PostgresAddress> ParsePostgresAddress(const std::string& url) {
  char* message = nullptr;  // This message is not shown, because it may quote a password.
  const std::unique_ptr<PQconninfoOption, FreeOptions> options(
      ::PQconninfoParse(url.c_str(), &message));
  ::PQfreemem(message);
  const auto find = [&](std::string_view keyword) -> std::string {
    for (const PQconninfoOption* option = options.get(); option && option->keyword; ++option) {
      if (keyword == option->keyword && option->val != nullptr) return option->val;
    }
    return {};
  };
  std::string host = find("host");
  if (host.empty()) host = find("hostaddr");
  const std::string port = find("port");
  const std::string name = find("dbname");
  // If a password contains an @ or / that is not encoded, parts of the password end up in these
  // values.
  const bool is_misread = (host + port + name).find('@') != std::string::npos;
  if (!options || is_misread || url.find('\0') != std::string::npos) {
    return Fail(
        "this is not the address of a PostgreSQL database (expected "
        "postgresql://USER:PASSWORD@HOST:PORT/NAME, with %40 for an @ in the password, %2F for a "
        "/, %3A for a : and %25 for a %)");
  }
  return PostgresAddress{
      .url = url,
      .name = fmt::format("postgresql://{}{}{}/{}", host, port.empty() ? "" : ":", port, name)};
}

Result<PostgresConnection> PostgresConnection::Open(const PostgresAddress& address) {
  std::vector<const char*> keywords;
  std::vector<const char*> values;
  const auto add = [&](const char* keyword, const char* value) {
    keywords.push_back(keyword);
    values.push_back(value);
  };
  for (const auto& [keyword, value] : kDefaults) add(keyword, value);
  add("dbname", address.url.c_str());
  add("client_encoding", "UTF8");
  add("fallback_application_name", "perseus");
  add(nullptr, nullptr);
  constexpr int kExpandAddress = 1;
  PostgresConnection connection(::PQconnectdbParams(keywords.data(), values.data(), kExpandAddress),
                                address.name);
  PGconn* const handle = connection.handle();
  if (::PQstatus(handle) != CONNECTION_OK) return connection.Failure(nullptr);
  // By default, libpq prints notices to standard error.
  ::PQsetNoticeProcessor(
      handle, [](void*, const char*) {}, nullptr);
  return connection;
}

bool PostgresConnection::WasInConflict() const { return state_ == "40001" || state_ == "40P01"; }

bool PostgresConnection::IsIdle() const {
  return !is_lost_ && ::PQtransactionStatus(connection_.get()) == PQTRANS_IDLE;
}

tl::unexpected<Error> PostgresConnection::Failure(const PGresult* result) {
  const auto field = [&](int code) -> std::string {
    const char* text = result == nullptr ? nullptr : ::PQresultErrorField(result, code);
    return text == nullptr ? "" : text;
  };
  state_ = field(PG_DIAG_SQLSTATE);
  const std::string primary = field(PG_DIAG_MESSAGE_PRIMARY);
  const std::string cause =
      FirstLine(primary.empty() ? ::PQerrorMessage(connection_.get()) : primary);
  // The connection is lost in three cases. No state: the error comes from libpq, which could not
  // reach or understand the server. (The status of libpq does not always show this.) 08: errors of
  // connections. 57P: the server stops, or an administrator ended this connection.
  if (state_.empty() || state_.starts_with("08") || state_.starts_with("57P")) {
    is_lost_ = true;
    return FailAs(
        ErrorKind::kSystem,
        "the database at {} does not answer: {} (check that it runs and accepts this user, "
        "then try again)",
        name_, cause);
  }
  // 22: data. 54: limits, for example of the keys of an index. Both are errors of the input.
  if (state_.starts_with("22") || state_.starts_with("54")) {
    return Fail("the database at {} cannot store this: {} (correct or shorten it)", name_, cause);
  }
  return FailAs(ErrorKind::kSystem, "the database at {} refuses: {} (see its log)", name_, cause);
}

Result<std::string> PostgresConnection::Prepare(std::string_view sql, Parameters parameters) {
  if (const auto known = statements_.find(sql); known != statements_.end()) return known->second;
  const std::string text(sql);
  const std::string name = fmt::format("s{}", statements_.size());
  const BoundParameters bound(parameters);
  const Answer answer(
      ::PQprepare(connection_.get(), name.c_str(), text.c_str(), bound.count(), bound.types()));
  if (::PQresultStatus(answer.get()) != PGRES_COMMAND_OK) return Failure(answer.get());
  statements_.emplace(text, name);
  return name;
}

Result<Rows> PostgresConnection::Run(std::string_view sql, Parameters parameters) {
  state_.clear();
  PERSEUS_ASSIGN_OR_RETURN(const std::string name, Prepare(sql, parameters));
  const BoundParameters bound(parameters);
  const Answer answer(::PQexecPrepared(connection_.get(), name.c_str(), bound.count(),
                                       bound.values(), bound.lengths(), bound.formats(), kAsText));
  const ExecStatusType status = ::PQresultStatus(answer.get());
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) return Failure(answer.get());
  return RowsOf(answer.get());
}

}  // namespace perseus::store
