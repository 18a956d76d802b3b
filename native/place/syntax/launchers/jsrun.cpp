#include <map>
#include <set>

#include "place/syntax/form.hpp"

/// jsrun of IBM's Job Step Manager. Its options place resource sets, whose CPUs it selects itself; only an explicit
/// resource file (ERF) names CPUs.
namespace mm::place::syntax {
namespace {

constexpr const char* kRank = "rank:";

std::string resource_file(const Layout& layout) {
  std::string text = "cpu_index_using: physical\n";
  std::set<int> seen;
  bool share = false;
  for (const auto& part : layout.parts)
    for (const int cpu : part) share = !seen.insert(cpu).second || share;
  // By default, jsrun refuses resource sets that have a CPU in common.
  if (share) text += "overlapping_rs: allow\noversubscribe_cpu: allow\n";
  for (std::size_t i = 0; i < layout.parts.size(); ++i)
    text += kRank + (" " + std::to_string(i)) + ": { host: 1; cpu: {" + cpu_list(layout.parts[i]) + "} }\n";
  return text;
}

Form emit_jsrun(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  return with_numactl("jsrun", {{"jsrun", "--erf_input", "{erf}"}, {}, {{"erf", resource_file(layout)}}}, machine,
                      layout, memory);
}

std::string without_blanks(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\t'; });
  return text;
}

/// Parses `{0-3},{4,5}` or `7`: sets of numbers.
std::vector<std::vector<int>> sets_of(const Reader& read, const std::string& value) {
  const auto numbers = [&](const std::string& list) {
    if (list.find(':') != std::string::npos) read.refuse(value);
    return ascending(read.list(list));
  };
  if (!value.starts_with('{')) return {numbers(value)};
  std::vector<std::vector<int>> sets;
  for (std::size_t at = 0; at < value.size();) {
    const std::size_t end = value.find('}', at);
    if (value[at] != '{' || end == std::string::npos) read.refuse(value);
    sets.push_back(numbers(value.substr(at + 1, end - at - 1)));
    at = end + 1;
    if (at == value.size()) break;
    if (value[at] != ',' || at + 1 == value.size()) read.refuse(value);
    ++at;
  }
  return sets;
}

/// Parses the lines of an explicit resource file, in which each rank is named once and all run on one host.
class ResourceFile {
 public:
  explicit ResourceFile(const Reader& read) : read_(read) {}

  void add(const std::string& text) {
    for (const std::string& whole : split(text, '\n')) {
      const std::string line = without_blanks(whole.substr(0, whole.find('#')));
      if (line.empty()) continue;
      if (line.starts_with(kRank))
        add_ranks(line);
      else if (line.find('{') != std::string::npos)
        throw UsageError(read_.form, "found " + quote(whole) + ", whose ranks depend on the launch distribution",
                         read_.example);
      else
        add_setting(whole, line);
    }
  }

  Parsed result() const {
    if (ranks_.empty()) throw UsageError(read_.form, "found no rank", read_.example);
    if (!physical_)
      throw UsageError(
          read_.form, "found no 'cpu_index_using: physical'; logical numbers depend on the threads per core of the job",
          read_.example);
    Parsed parsed;
    for (const auto& [rank, cpus] : ranks_) {
      if (rank != static_cast<int>(parsed.layout.parts.size()))
        throw UsageError(read_.form, "rank " + std::to_string(parsed.layout.parts.size()) + " is missing",
                         "all ranks from 0");
      parsed.layout.parts.push_back(cpus);
    }
    parsed.left_out = left_out_;
    return parsed;
  }

 private:
  void add_setting(const std::string& whole, const std::string& line) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) read_.refuse(whole);
    const std::string key = line.substr(0, colon);
    if (key.starts_with("app"))
      throw UsageError(read_.form, "found " + quote(whole), "the command after the options of jsrun");
    if (key == "cpu_index_using")
      physical_ = line.substr(colon + 1) == "physical";
    else if (!key.starts_with("overlapping") && !key.starts_with("oversubscribe"))  // these only permit a launch
      left_out_.push_back(whole);
  }

  /// Parses `rank:RANGE:{host:1;cpu:{0-3},{4-7};gpu:{0}}`, perhaps with `:app0` at its end.
  void add_ranks(const std::string& line) {
    const std::size_t first = std::string_view(kRank).size(), end = line.rfind('}');
    const std::size_t begin = line.find(":{", line.find_first_not_of('{', first));  // braces may enclose the ranks, too
    if (begin == std::string::npos || begin < first || end <= begin + 1) read_.refuse(line);
    if (const std::string rest = line.substr(end + 1); !rest.empty() && rest != ":app0") read_.refuse(line);
    std::vector<std::vector<int>> sets;
    bool has_host = false;
    for (const std::string& pair : split(line.substr(begin + 2, end - begin - 2), ';')) {
      if (pair.empty()) continue;
      const std::size_t colon = pair.find(':');
      const std::string key = pair.substr(0, colon), value = colon == std::string::npos ? "" : pair.substr(colon + 1);
      if (key == "host")
        has_host = true, check_host(value);
      else if (key == "cpu")
        sets = sets_of(read_, value);
      else
        left_out_.push_back(pair);
    }
    if (!has_host || sets.empty()) read_.refuse(line);
    add_sets(line, line.substr(first, begin - first), sets);
  }

  void add_sets(const std::string& line, std::string range, const std::vector<std::vector<int>>& sets) {
    if (range.size() > 1 && range.front() == '{' && range.back() == '}') range = range.substr(1, range.size() - 2);
    std::vector<int> ranks;
    for (const std::string& word : split(range, ',')) {
      if (word.find(':') != std::string::npos) read_.refuse(line);
      for (const int rank : read_.range(word)) ranks.push_back(rank);
      if (ranks.size() > kMaxNumbers) read_.refuse(line);
    }
    // Each rank is bound to one set; what further sets are for depends on the version of jsrun.
    if (ranks.size() != sets.size())
      throw UsageError(read_.form, "found " + quote(line) + ", whose ranks and sets of CPUs differ in number",
                       "one set for each rank");
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (!ranks_.emplace(ranks[i], sets[i]).second) read_.refuse(line);
  }

  void check_host(const std::string& host) {
    if (host.empty() || (!host_.empty() && host != host_) || host.find_first_of("{,") != std::string::npos)
      throw UsageError(read_.form, "found host " + quote(host), "one host, since a layout covers one node");
    host_ = host;
  }

  const Reader& read_;
  std::map<int, std::vector<int>> ranks_;
  std::string host_;
  bool physical_ = false;
  Words left_out_;
};

Parsed parse_jsrun(const Reader& read, CommandLine& line) {
  const auto name = line.take("--erf_input");
  auto text = name ? line.take_file(name->substr(name->rfind('/') + 1)) : line.take_file("erf");
  if (!text && line.value()) text = line.text();
  if (!text)
    throw UsageError(read.form,
                     "found no explicit resource file in " + quote(line.text()) +
                         "; with other options, jsrun selects the CPUs itself",
                     "the text of the file, " + read.example);
  ResourceFile file(read);
  file.add(*text);
  return file.result();
}

}  // namespace

std::vector<Syntax> jsrun() {
  return {
      {"jsrun",
       "jsrun of IBM's Job Step Manager: an explicit resource file",
       "'cpu_index_using: physical' and lines such as 'rank: 0: { host: 1; cpu: {0-3} }'",
       kAbsolute,
       false,
       false,
       emit_jsrun,
       {{"jsrun"},
        {{"--erf_input -U", 1},
         {"--nrs -n", 1},
         {"--np -p", 1},
         {"--tasks_per_rs -a", 1},
         {"--cpu_per_rs -c", 1},
         {"--gpu_per_rs -g", 1},
         {"--memory_per_rs -m", 1},
         {"--rs_per_host -r", 1},
         {"--latency_priority -l", 1},
         {"--launch_distribution -d", 1},
         {"--bind -b", 1},
         {"--env -E", 1},
         {"--chdir -h", 1},
         {"--stdio_stdout -o", 1},
         {"--stdio_stderr -k", 1},
         {"--smpiargs -M", 1}}},
       parse_jsrun},
  };
}

}  // namespace mm::place::syntax
