#include "mpi/messages/message.hpp"

#include "base/error.hpp"
#include "base/options/options.hpp"

namespace mm::mpi {

Parameter message_parameter(const std::string& default_value) {
  return {"message",
          "message sizes: 0, sizes, or ranges of sizes, such as 0,8..4MiB",
          "B",
          Kind::text,
          default_value,
          {},
          {},
          {},
          "--bytes"};
}

std::vector<std::size_t> message_sizes(const Run& run) {
  std::vector<std::size_t> sizes;
  for (const std::string& part : split(run.text("message"), ','))
    if (part == "0") {
      sizes.push_back(0);
    } else {
      for (const std::size_t bytes : parse_sizes("bytes", part)) {
        if (bytes > 1u << 30) throw UsageError("bytes", "found " + quote(part), "0 to 1GiB");
        sizes.push_back(bytes);
      }
    }
  return sizes;
}

}  // namespace mm::mpi
