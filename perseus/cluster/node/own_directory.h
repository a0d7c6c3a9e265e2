// Says where a node writes the assignment of a job (assignment_places.h): into the job directory if
// it belongs to the user of this process, and otherwise into a directory of the node.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/protocol/job_directory/assignment_places.h"

namespace perseus::node {

// Identifies a directory independently of its name.
struct DirectoryId {
  std::uint64_t device = 0;  // 0: the directory does not exist.
  std::uint64_t number = 0;
  uid_t owner = 0;
  friend bool operator==(const DirectoryId&, const DirectoryId&) = default;
};
DirectoryId IdentifyDirectory(const std::filesystem::path& directory);

// Returns the names of a user: the name, if the user has one, and the id.
std::vector<std::string> NamesOfUser(uid_t user);

// Returns the absolute path without symbolic links. If it cannot be resolved, returns it with them.
std::filesystem::path WithoutLinks(const std::filesystem::path& directory);

// Returns the places of a job. places.node is PARENT/NAME, with the last part of the job directory
// as its name, or empty. A directory that does not exist yet gets no other place.
protocol::AssignmentPlaces PlacesFor(const std::filesystem::path& job_directory,
                                     const DirectoryId& id, const std::filesystem::path& parent);

// Creates places.node for the job directory with this identity. Deletes what the node wrote there
// for another directory with this name, such as that of another user before. Does nothing if
// places.node is empty. Fails (kSystem) if the place cannot be written. Also fails unless only root
// and this user can replace the parent of places.node and each directory above it: another user
// could lead this process to any file. None of them may be a symbolic link.
Result<void> PreparePlace(const protocol::AssignmentPlaces& places, const DirectoryId& id);

// Deletes the places in `parent` whose job directory no longer exists, or is now another one.
void DeleteVanishedPlaces(const std::filesystem::path& parent);

// Deletes places.node with its content.
void DeletePlace(const protocol::AssignmentPlaces& places);

// Returns why ranks do not find places.node, or an empty text if they do.
std::string WhyNotFound(const protocol::AssignmentPlaces& places);

}  // namespace perseus::node
