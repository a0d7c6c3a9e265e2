// A certificate authority for tests, and certificates that it issues, as PEM files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

struct evp_pkey_st;  // OpenSSL's EVP_PKEY.
struct x509_st;      // OpenSSL's X509.

namespace perseus::http {

class TestAuthority {
 public:
  // Writes the authority's files to `directory`.
  TestAuthority(std::filesystem::path directory, const std::string& name);

  std::string file() const { return file_; }
  struct Files {
    std::string certificate;
    std::string key;
  };
  // `names`: subject alternative names, such as "DNS:localhost,IP:127.0.0.1". It may be empty.
  // Replaces existing files with the prefix `file`.
  Files Issue(const std::string& file, const std::string& common_name, const std::string& names);

 private:
  std::filesystem::path directory_;
  std::string file_;
  std::shared_ptr<evp_pkey_st> key_;
  std::shared_ptr<x509_st> certificate_;
};

}  // namespace perseus::http
