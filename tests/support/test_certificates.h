// An authority for tests, and certificates of it, as PEM files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

struct evp_pkey_st;  // OpenSSL's EVP_PKEY.
struct x509_st;      // OpenSSL's X509.

namespace perseus::http {

class TestAuthority {
 public:
  // Its files lie in `directory`.
  TestAuthority(std::filesystem::path directory, const std::string& name);

  std::string file() const { return file_; }
  struct Files {
    std::string certificate;
    std::string key;
  };
  // `names`: "DNS:localhost,IP:127.0.0.1"; empty: none. Files of the same `file` are replaced.
  Files Issue(const std::string& file, const std::string& common_name, const std::string& names);

 private:
  std::filesystem::path directory_;
  std::string file_;
  std::shared_ptr<evp_pkey_st> key_;
  std::shared_ptr<x509_st> certificate_;
};

}  // namespace perseus::http
