#include "tests/oracle/published_policies.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "perseus/base/file.h"
#include "perseus/planning/profile/csv_reader.h"

namespace perseus {

std::filesystem::path PublishedPoliciesPath() {
  return PublishedFrontierPath(kMeasuredJobs[0], 12).parent_path() / "published.csv";
}

std::vector<PublishedPolicies> ReadPublishedPolicies() {
  const auto text = ReadFile(PublishedPoliciesPath());
  if (!text) std::abort();
  std::vector<PublishedPolicies> rows;
  profile::CsvReader reader(*text, "published.csv");
  if (!reader.Next().value_or(false)) std::abort();
  while (reader.Next().value_or(false)) {
    const auto fields = reader.fields();
    if (fields.size() != 7) std::abort();
    const auto number = [&](std::size_t i) { return std::stod(std::string(fields[i])); };
    PublishedPolicies row;
    for (const MeasuredJob& job : kMeasuredJobs) {
      if (job.name.starts_with(fields[0])) row.job = &job;
    }
    if (row.job == nullptr) std::abort();
    row.microbatches = static_cast<int>(number(2));
    row.perseus_saving = number(4) / 100;
    row.envpipe_time_s = number(5) / 10;
    row.envpipe_energy_j = number(6) / 80;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace perseus
