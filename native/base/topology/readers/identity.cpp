/// Names machines by their host name and a hash of their hardware.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string_view>

#include "base/topology/topology.hpp"
#include "sys/files.hpp"
#include "sys/words.hpp"

namespace mm {
namespace {

/// FNV-1a, 64 bits.
class Fnv1aHash {
 public:
  void add(std::string_view text) {
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    value_ = (value_ ^ '\n') * 0x100000001b3;
  }
  void add(double number) {
    std::array<char, 32> text;
    add(std::string_view(text.data(), static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "%g", number))));
  }
  std::string digits() const {
    std::array<char, 17> text;
    std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value_));
    return std::string(text.data(), 12);
  }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

/// Returns the fields of the first CPU in /proc/cpuinfo.
std::map<std::string, std::string> first_cpu(const std::string& root) {
  const std::string beginning = beginning_of(root + "/proc/cpuinfo");
  std::map<std::string, std::string> fields;
  for (std::string_view text = beginning; !text.empty();) {
    const std::string_view line = next_line(text);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      if (!fields.empty()) break;  // the end of the first CPU
      continue;
    }
    const std::size_t end = line.find_last_not_of(" \t", colon == 0 ? 0 : colon - 1);
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin != std::string_view::npos) fields.emplace(line.substr(0, end + 1), line.substr(begin));
  }
  return fields;
}

using Names = std::initializer_list<const char*>;
constexpr Names kModel{"model name", "Model", "cpu model", "cpu"};

/// Returns the value of the first of several fields that exists; "" if none of them exists.
std::string first_value(const std::map<std::string, std::string>& fields, const Names& names) {
  for (const char* name : names)
    if (const auto at = fields.find(name); at != fields.end() && !at->second.empty()) return at->second;
  return "";
}

std::string for_file_names(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool is_valid = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
    if (is_valid || out.empty() || out.back() != '-') out += is_valid ? c : '-';
  }
  out.erase(0, std::min(out.find_first_not_of("-."), out.size()));
  out.erase(out.find_last_not_of("-.") + 1);
  return out.empty() ? "machine" : out.substr(0, 64);
}

std::string name_of(const std::string& root) {
  const std::string name = first_line(root + "/proc/sys/kernel/hostname");
  return name.empty() ? std::filesystem::path(root).filename().string() : name;
}

}  // namespace

std::string Identity::id() const { return hash.empty() ? name : name + "-" + hash.substr(0, 8); }

Identity identity_of_tree(const std::string& root) { return identity_of_tree(root, machine_of_tree(root)); }

Identity identity_of_tree(const std::string& root, const Machine& machine) {
  Identity identity{for_file_names(name_of(root)), ""};
  if (machine.cpus.empty()) return identity;
  Fnv1aHash hash;
  for (const Cpu& cpu : machine.cpus)
    for (const int number : {cpu.id, cpu.core_id, cpu.package_id, cpu.node}) hash.add(number);
  for (const Node& node : machine.nodes) hash.add(node.id);
  for (const auto& row : machine.distance)
    for (const double distance : row) hash.add(distance);
  const auto fields = first_cpu(root);
  for (const Names& names :
       {Names{"vendor_id", "CPU implementer", "vendor"}, kModel, Names{"cpu family", "CPU architecture"},
        Names{"model", "CPU part"}, Names{"stepping", "CPU revision"}})
    hash.add(first_value(fields, names));
  identity.hash = hash.digits();
  return identity;
}

std::string processor_of_tree(const std::string& root) { return first_value(first_cpu(root), kModel); }

const std::string& machine_id() {
  static const std::string id = identity_of_tree("").id();
  return id;
}

}  // namespace mm
