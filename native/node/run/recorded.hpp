#pragma once
/// Small files of /proc and /sys, recorded with the results.
#include <string>
#include <vector>

#include "node/run/result_file.hpp"

namespace mm::node {

/// Writes {"type": "file", "path", "content"} for each regular file that a pattern matches below `root`. `content`
/// contains each byte as the character with the same number, so that firmware tables stay exact. Files that cannot be
/// read are left out.
void record_files(const std::vector<std::string>& patterns, const std::string& root, ResultFile& out);

}  // namespace mm::node
