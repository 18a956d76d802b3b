#include "place/syntax/form.hpp"

#include <cctype>
#include <iterator>
#include <map>
#include <set>

namespace mm::place::syntax {
namespace {

Form threads(const std::string& form, const Machine& machine, const Layout& layout, const MemoryPolicy& memory,
             std::vector<std::pair<std::string, std::string>> environment) {
  environment.emplace_back("OMP_NUM_THREADS", count(layout));
  return with_numactl(form, {{}, std::move(environment), {}}, machine, layout, memory);
}

Form emit_places(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  Words places;
  for (const auto& part : layout.parts) places.push_back("{" + plain(part, ",") + "}");
  // `close`, not `true`: with as many threads as places, thread i gets place i.
  return threads("omp-places", machine, layout, memory,
                 {{"OMP_PLACES", join(places, ",")}, {"OMP_PROC_BIND", "close"}});
}

// Takes the value of the variable NAME: from an assignment, or the text alone.
std::string take_value(const Reader& read, CommandLine& line, const char* name) {
  const auto value = line.value() ? line.value() : line.take_variable(name);
  if (!value) read.refuse(line.text());
  return *value;
}

// Returns the places of as many threads as OMP_NUM_THREADS and OMP_PROC_BIND request. Accepts only what every OpenMP
// run time treats alike.
Layout of_threads(const Reader& read, CommandLine& line, const Layout& places) {
  const auto threads = line.take_variable("OMP_NUM_THREADS");
  const std::string bind = line.take_variable("OMP_PROC_BIND").value_or("true");
  const std::size_t all = places.parts.size();
  if (bind == "false")
    throw UsageError(read.form, "found OMP_PROC_BIND=false, which binds no thread", "close, spread, primary or true");
  if (bind != "true" && bind != "close" && bind != "spread" && bind != "primary" && bind != "master")
    throw UsageError(read.form, "found OMP_PROC_BIND=" + bind, "close, spread, primary or true");
  const std::size_t count = threads ? static_cast<std::size_t>(read.number(*threads)) : all;
  if (count < 1) read.refuse(threads.value_or(""));
  const bool primary = bind == "primary" || bind == "master";
  if (!primary && count == all) return places;
  const bool divides = count > all ? count % all == 0 : all % count == 0;
  if (!primary && (bind == "true" || (!divides && (bind == "spread" || count > all))))
    throw UsageError(read.form,
                     "found OMP_NUM_THREADS=" + std::to_string(count) + " for " + std::to_string(all) +
                         " places with OMP_PROC_BIND=" + bind + ", which OpenMP libraries distribute differently",
                     "as many places as threads");
  Layout layout;
  for (std::size_t i = 0; i < count; ++i)
    add(layout, places.parts[primary ? 0 : count > all ? i / (count / all) : bind == "spread" ? i * (all / count) : i]);
  return layout;
}

// Parses {N[:LENGTH[:STRIDE]],…}[:LENGTH[:STRIDE]],… or threads, cores, ll_caches, numa_domains, sockets with an
// optional (N).
Layout places_of(const Reader& read, std::string value) {
  std::erase_if(value, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
  if (!value.empty() && std::isalpha(static_cast<unsigned char>(value[0]))) {
    const std::size_t bracket = value.find('(');
    const std::string level = value.substr(0, bracket);
    std::size_t max_places = kMaxNumbers;
    if (bracket != std::string::npos) {
      if (value.back() != ')') read.refuse(value);
      max_places = static_cast<std::size_t>(read.number(value.substr(bracket + 1, value.size() - bracket - 2)));
    }
    std::map<int, std::vector<int>> places;
    for (const Cpu& cpu : in_order(read.machine, read.machine.allowed)) {
      const int key = level == "threads"        ? static_cast<int>(places.size())
                      : level == "cores"        ? cpu.core
                      : level == "ll_caches"    ? cpu.l3
                      : level == "numa_domains" ? cpu.node
                      : level == "sockets"      ? cpu.package
                                                : -1;
      if (key < 0) read.refuse(value);
      places[key].push_back(cpu.id);
    }
    Layout layout;
    for (const auto& [key, cpus] : places)
      if (layout.parts.size() < max_places) add(layout, cpus);
    if (layout.parts.empty()) read.refuse(value);
    return layout;
  }
  std::size_t at = 0;
  const auto number = [&](bool negative) {
    const std::size_t begin = at;
    if (negative && at < value.size() && value[at] == '-') ++at;
    while (at < value.size() && std::isdigit(static_cast<unsigned char>(value[at]))) ++at;
    const std::string word = value.substr(begin, at - begin);
    if (word.empty()) read.refuse(value.substr(begin));
    return word[0] == '-' ? -read.number(word.substr(1)) : read.number(word);
  };
  const auto interval = [&] {  // [:LENGTH[:STRIDE]]
    std::pair<int, int> length_and_stride{1, 1};
    if (at < value.size() && value[at] == ':') {
      ++at;
      length_and_stride.first = number(false);
      if (at < value.size() && value[at] == ':') {
        ++at;
        length_and_stride.second = number(true);
      }
    }
    return length_and_stride;
  };
  const auto shifted = [](long long from, long long steps, long long stride) {
    return static_cast<int>(std::clamp<long long>(from + steps * stride, -1, kHighest));
  };
  Layout layout;
  for (;;) {
    const std::size_t begin = at;
    if (at >= value.size() || value[at] != '{') read.refuse(value.substr(begin));
    std::vector<int> place;
    do {
      ++at;
      const int start = number(false);
      const auto [length, stride] = interval();
      for (int i = 0; i < length; ++i) place.push_back(shifted(start, i, stride));
      if (place.size() > kMaxNumbers) read.refuse(value.substr(begin, 40));
    } while (at < value.size() && value[at] == ',');
    if (at >= value.size() || value[at] != '}') read.refuse(value.substr(begin));
    ++at;
    place = ascending(place);
    const auto [length, stride] = interval();
    const std::string word = value.substr(begin, at - begin);
    for (int i = 0; i < length; ++i) {
      std::vector<int> part;
      for (const int cpu : place) part.push_back(read.known(shifted(cpu, i, stride), word));
      if (part.empty()) read.refuse(word);
      add(layout, part);
    }
    if (at == value.size()) return layout;
    if (value[at++] != ',') read.refuse(value.substr(begin));
  }
}

Parsed parse_places(const Reader& read, CommandLine& line) {
  const Layout places = places_of(read, take_value(read, line, "OMP_PLACES"));
  return {of_threads(read, line, places), {}};
}

Form emit_gomp(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  Words cpus;
  for (const auto& part : layout.parts) cpus.push_back(std::to_string(part[0]));
  return threads("gomp", machine, layout, memory, {{"GOMP_CPU_AFFINITY", join(cpus, " ")}});
}

Parsed parse_gomp(const Reader& read, CommandLine& line) {
  const Layout cpus = singles(read.list(join(shell_words(take_value(read, line, "GOMP_CPU_AFFINITY")), ",")));
  const auto bind = line.take_variable("OMP_PROC_BIND");
  if (bind && *bind == "false")
    throw UsageError("gomp", "found OMP_PROC_BIND=false, which binds no thread", "true, or no OMP_PROC_BIND");
  return {limited_to_tasks(read, cpus, line.take_variable("OMP_NUM_THREADS"), true), {}};
}

Form emit_kmp(const Machine& machine, const Layout& layout, const MemoryPolicy& memory) {
  Words items;
  for (const auto& part : layout.parts)
    items.push_back(part.size() == 1 ? std::to_string(part[0]) : "{" + plain(part, ",") + "}");
  return threads("kmp", machine, layout, memory,
                 {{"KMP_AFFINITY", "granularity=fine,proclist=[" + join(items, ",") + "],explicit"}});
}

// With the granularity `core`, and without one, a thread may use the whole core of each CPU.
std::vector<int> with_granularity(const Reader& read, const std::string& granularity, const std::vector<int>& cpus) {
  if (granularity == "fine" || granularity == "thread") return cpus;
  std::vector<int> widened;
  for (const Cpu& cpu : read.machine.cpus)
    if (std::any_of(cpus.begin(), cpus.end(), [&](int id) { return read.machine.cpu(id).core == cpu.core; }))
      widened.push_back(cpu.id);
  if (granularity == "core" || widened == ascending(cpus)) return widened;
  throw UsageError("kmp", "found " + (granularity.empty() ? "no granularity" : "granularity=" + granularity),
                   "granularity=fine or granularity=core");
}

Parsed parse_kmp(const Reader& read, CommandLine& line) {
  const std::string value = take_value(read, line, "KMP_AFFINITY");
  const std::size_t open = value.find('['), close = value.rfind(']');
  if (open == std::string::npos || close == std::string::npos || close < open || value.find("proclist=") + 9 != open)
    read.refuse(value);
  std::string granularity;
  bool is_explicit = false;
  Parsed parsed;
  for (const std::string& word : split(value.substr(0, open - 9) + value.substr(close + 1), ',')) {
    if (word.starts_with("granularity="))
      granularity = word.substr(12);
    else if (word == "explicit")
      is_explicit = true;
    else if (word == "norespect" || word == "reset")
      parsed.left_out.push_back(word);
    else if (!word.empty() && word != "verbose" && word != "noverbose" && word != "warnings" && word != "nowarnings" &&
             word != "respect")
      read.refuse(value);
  }
  if (!is_explicit)
    throw UsageError("kmp", "found a proclist without the type 'explicit' in " + quote(value) + ", which ignores it",
                     read.example);
  Layout layout;
  const std::string inner = value.substr(open + 1, close - open - 1);
  for (std::size_t at = 0; at <= inner.size();) {
    if (at < inner.size() && inner[at] == '{') {
      const std::size_t end = inner.find('}', at);
      if (end == std::string::npos || (end + 1 < inner.size() && inner[end + 1] != ',')) read.refuse(inner.substr(at));
      add(layout, with_granularity(read, granularity, read.list(inner.substr(at + 1, end - at - 1))));
      at = end + 2;
    } else {
      const std::size_t end = std::min(inner.find(',', at), inner.size());
      for (const int cpu : read.list(inner.substr(at, end - at)))
        add(layout, with_granularity(read, granularity, {cpu}));
      at = end + 1;
    }
  }
  parsed.layout = limited_to_tasks(read, layout, line.take_variable("OMP_NUM_THREADS"), true);
  return parsed;
}

}  // namespace

std::vector<Syntax> openmp() {
  return {
      {"omp-places",
       "OMP_PLACES of every OpenMP",
       "'{0,4},{1,5}', '{0:2}:4:2' or 'cores(4)'",
       kAbsolute,
       false,
       false,
       emit_places,
       {},
       parse_places},
      {"gomp",
       "GOMP_CPU_AFFINITY of GNU's OpenMP",
       "'0 4 1-3 8-14:2'",
       kAbsolute,
       false,
       true,
       emit_gomp,
       {},
       parse_gomp},
      {"kmp",
       "KMP_AFFINITY of Intel's and LLVM's OpenMP",
       "'granularity=fine,proclist=[0,{4,5},8-14:2],explicit'",
       kAbsolute,
       false,
       false,
       emit_kmp,
       {},
       parse_kmp},
  };
}

}  // namespace mm::place::syntax
