#pragma once
/// The one file that a node leaves: compressed JSON Lines, complete or absent.
#include <zlib.h>

#include <string>
#include <string_view>

#include "base/json.hpp"

namespace mm::node {

/// Returns whether readers of results need a line: samples are in the results, and progress is no longer of interest.
bool is_retained(std::string_view line);

/// The file is written beside its final name and renamed at the end, so that a reader of a shared folder never sees an
/// incomplete file. A killed runner leaves the temporary file, whose finished steps can be read.
class ResultFile {
 public:
  /// `folder`: folder of NAME.jsonl.gz; "-": standard output, uncompressed. Throws Failure.
  ResultFile(const std::string& folder, const std::string& name);
  ~ResultFile();
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  void line(const json& value);
  /// `text` is a whole line without its newline.
  void text_line(std::string_view text);
  /// Makes everything so far readable, even if the runner is killed.
  void flush();
  /// Writes the file to disk and gives it its name: NAME.jsonl.gz, or NAME+interrupted.jsonl.gz if steps did not run.
  void finish(bool interrupted = false);

  std::size_t bytes() const { return bytes_; }
  /// Returns the path of the complete file; call it after `finish`.
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail() const;
  void write(std::string_view text);
  void deflate_all(std::string_view text, int how);

  int file_ = -1;
  bool compressed_ = false;
  std::string aside_, path_, folder_;
  z_stream stream_{};
  std::size_t bytes_ = 0;  ///< bytes of uncompressed text
};

/// Returns whether the folder has a result of this name.
bool has_result(const std::string& folder, const std::string& name);

}  // namespace mm::node
