#include "node/run/result_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include "base/error.hpp"
#include "base/harness/output.hpp"

namespace mm::node {
namespace {

/// Returns twelve hexadecimal digits, with which all our programs mark temporary files (store/files.py).
std::string token() {
  std::random_device random;
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%08x%04x", static_cast<unsigned>(random()),
                static_cast<unsigned>(random()) & 0xffffU);
  return text.data();
}

constexpr std::string_view kSuffix = ".jsonl.gz";

std::string path_of(const std::string& folder, const std::string& name) {
  return folder + "/" + name + std::string(kSuffix);
}

}  // namespace

bool has_result(const std::string& folder, const std::string& name) {
  return folder != "-" && ::access(path_of(folder, name).c_str(), F_OK) == 0;
}

bool is_retained(std::string_view line) {
  return !line.starts_with("{\"type\":\"sample\"") && !line.starts_with("{\"type\":\"progress\"");
}

ResultFile::ResultFile(const std::string& folder, const std::string& name) : folder_(folder) {
  if (folder == "-") {
    file_ = ::dup(STDOUT_FILENO);
    path_ = "standard output";
    if (file_ < 0) fail();
    return;
  }
  path_ = path_of(folder, name);
  aside_ = folder + "/." + name + std::string(kSuffix) + "." + token();
  file_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file_ < 0) {
    aside_.clear();
    fail();
  }
  compressed_ = true;
  constexpr int kGzip = 16;  // added to the size of the window to request gzip's header
  if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw Failure("cannot compress the results: not enough memory");
}

ResultFile::~ResultFile() {
  if (compressed_) deflateEnd(&stream_);
  if (file_ >= 0) ::close(file_);
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

void ResultFile::fail() const { throw Failure("cannot write " + shown_path(path_) + ": " + std::strerror(errno)); }

void ResultFile::write(std::string_view text) {
  if (!write_all(file_, text)) fail();
}

void ResultFile::deflate_all(std::string_view text, int how) {
  std::array<char, 16384> out;
  stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream_.avail_in = static_cast<uInt>(text.size());
  do {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    ::deflate(&stream_, how);
    write({out.data(), out.size() - stream_.avail_out});
  } while (stream_.avail_out == 0);
}

void ResultFile::text_line(std::string_view text) {
  bytes_ += text.size() + 1;
  if (!compressed_) {
    write(std::string(text) + '\n');
    return;
  }
  deflate_all(text, Z_NO_FLUSH);
  deflate_all("\n", Z_NO_FLUSH);
}

void ResultFile::line(const json& value) { text_line(to_line(value)); }

void ResultFile::flush() {
  if (compressed_) deflate_all("", Z_SYNC_FLUSH);
}

void ResultFile::finish(bool interrupted) {
  if (!compressed_) return;
  // No node has a "+" in its name, so the campaign, which reads only names, recognises that this node must be tried
  // again.
  if (interrupted) path_.insert(path_.size() - kSuffix.size(), "+interrupted");
  deflate_all("", Z_FINISH);
  if (::fsync(file_) != 0 || ::rename(aside_.c_str(), path_.c_str()) != 0) fail();
  aside_.clear();
  const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) fail();
  ::fsync(folder);  // best effort: some file systems do not synchronise folders
  ::close(folder);
}

}  // namespace mm::node
