#include "perseus/cluster/node/answers.h"

#include "perseus/base/json_file.h"

namespace perseus::node {
namespace {

// A newer server may add values that are nested more deeply than the known ones.
constexpr int kDeepestAnswer = 16;

}  // namespace

std::string JobOfAnswer(std::string_view body) {
  const auto job =
      json_file::Read(body, "answer", kDeepestAnswer, [](const json_file::Node& answer) {
        return answer.Has("job") ? answer.Member("job").Text() : std::string();
      });
  return job.value_or("");
}

std::set<std::string> NotAttachedOfAnswer(std::string_view body) {
  const auto jobs =
      json_file::Read(body, "answer", kDeepestAnswer, [](const json_file::Node& answer) {
        std::set<std::string> named;
        if (!answer.Has("not_attached")) return named;
        const json_file::Node list = answer.Member("not_attached");
        for (std::size_t i = 0; i < list.ListSize(); ++i) named.insert(list[i].Text());
        return named;
      });
  return jobs.value_or(std::set<std::string>());
}

bool IsNameConflict(const http::Response& problem) {
  const auto pointer =
      json_file::Read(problem.body, "answer", kDeepestAnswer, [](const json_file::Node& answer) {
        return answer.Has("pointer") ? answer.Member("pointer").Text() : std::string();
      });
  return pointer.value_or("") == "/instance";
}

bool IsUnknownJob(const http::Response& problem) {
  constexpr int kNotFound = 404;
  constexpr int kConflict = 409;
  if (problem.status != kNotFound && problem.status != kConflict) return false;
  // A proxy may answer with the same status, but its body is a page.
  const auto is_problem =
      json_file::Read(problem.body, "answer", kDeepestAnswer,
                      [](const json_file::Node& answer) { return answer.Has("title"); });
  return is_problem.value_or(false) && !IsNameConflict(problem);
}

}  // namespace perseus::node
