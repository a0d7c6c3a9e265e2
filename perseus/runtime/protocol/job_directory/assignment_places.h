// The two places of a job's assignment, so that no user writes where another user does.
//
//   /run/perseus/jobs/17/           belongs to the user of the job, who alone writes here
//     assignment.json, plans/         from tune, verify and run, which this user starts
//     ranks/, server.json, coordinator.lock
//     node -> ../../node/17           a link to the other place
//   /run/perseus/node/17/           belongs to the user of `perseus node`, who alone writes here
//     assignment.json, plans/         from the server
//     directory                       the job directory that these files are for
//
// If the job directory belongs to the node's own user, as on a laptop, the node writes into the job
// directory, and the second place does not exist.
//
// Which assignment counts. The one with the higher version. Each writer reads both places and
// counts on from there. Both places have the same version only if the node and another coordinator
// write at the same time. (The node sees whether coordinator.lock is locked, but only the user can
// lock it.) Then the one in the job directory counts.
//
// How a rank finds the place of the node. Slurm's prolog makes the link with the job directory.
// Without Slurm, root does. A rank follows the link if it belongs to the owner of the job
// directory, to root, or to the rank's own user. Rejected alternatives: an environment variable
// (each job script would have to set it), and a path that follows from the name of the job
// directory. Another user may own a directory with such a name: /home/node/run for /home/ann/run.
// With a fixed parent such as /run/perseus, a job directory elsewhere would have no second place.
// The owner of a parent cannot be checked in a container with its own user ids. And a person can
// follow the link.
#pragma once

#include <filesystem>

namespace perseus::protocol {

struct AssignmentPlaces {
  std::filesystem::path job;
  std::filesystem::path node = {};  // Empty: no such place.
};

// The name of the link in the job directory.
inline constexpr const char* kNodeLink = "node";

// Returns the places for the ranks and the coordinators of the job's user. Follows the link in the
// job directory.
AssignmentPlaces FindPlaces(const std::filesystem::path& job_directory);

}  // namespace perseus::protocol
