#include "perseus/cluster/store/dump_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace perseus::store {

struct RunningHash::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

RunningHash::RunningHash() : state_(std::make_unique<State>()) {
  EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr);
}
RunningHash::~RunningHash() { EVP_MD_CTX_free(state_->context); }

void RunningHash::Add(std::string_view text) {
  EVP_DigestUpdate(state_->context, text.data(), text.size());
}

std::string RunningHash::Hexadecimal() const {
  EVP_MD_CTX* copy = EVP_MD_CTX_new();
  EVP_MD_CTX_copy_ex(copy, state_->context);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_DigestFinal_ex(copy, digest.data(), &size);
  EVP_MD_CTX_free(copy);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest.at(i));
  return text;
}

DumpWriter::DumpWriter(std::FILE* file, std::string path)
    : file_(file), path_(std::move(path)), hash_(std::make_unique<RunningHash>()) {}

Result<DumpWriter> DumpWriter::Create(const std::string& path) {
  const std::string part = path + ".part";
  // A file that another user could read, or a link that another user made, is not followed.
  ::unlink(part.c_str());
  const int file = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) {
    return FailAs(ErrorKind::kSystem,
                  "cannot create {}: {} (does its directory exist, and may this user write there?)",
                  part, std::strerror(errno));
  }
  return DumpWriter(::fdopen(file, "w"), path);
}

DumpWriter::~DumpWriter() {
  if (file_) ::unlink((path_ + ".part").c_str());
}

Result<void> DumpWriter::Failed() const {
  return FailAs(ErrorKind::kSystem, "cannot write {}: {} (free space, or name another file)", path_,
                std::strerror(errno));
}

Result<void> DumpWriter::Write(std::string_view line) {
  hash_->Add(line);
  hash_->Add("\n");
  const bool is_written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                          std::fputc('\n', file_.get()) != EOF;
  return is_written ? Result<void>() : Failed();
}

Result<void> DumpWriter::Finish() {
  if (std::fflush(file_.get()) != 0 || ::fsync(::fileno(file_.get())) != 0) return Failed();
  const std::string part = path_ + ".part";
  if (::rename(part.c_str(), path_.c_str()) != 0) return Failed();
  file_.reset();
  const std::filesystem::path directory = std::filesystem::absolute(path_).parent_path();
  if (const int opened = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      opened >= 0) {
    ::fsync(opened);
    ::close(opened);
  }
  return {};
}

Result<DumpReader> DumpReader::Open(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return Fail("cannot read the backup {} (does the file exist?)", path);
  }
  DumpReader reader;
  reader.file_.open(path, std::ios::binary);
  if (!reader.file_) return Fail("cannot read the backup {} (may this user read it?)", path);
  return reader;
}

bool DumpReader::Next(std::string& line) {
  before_ = hash_->Hexadecimal();
  if (!std::getline(file_, line)) return false;
  ++line_;
  hash_->Add(line);
  hash_->Add("\n");
  return true;
}

}  // namespace perseus::store
