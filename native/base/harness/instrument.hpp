#pragma once
/// An instrument is a description and a function that turns parameters into points to measure.
///
/// An instrument is one file in native/instruments and one line of CMake. It neither parses nor prints: it reads
/// parameters from `Run`, allocates and binds memory, builds `Point`s and passes them to `Run::measure`, which samples,
/// shields, flags, prints and resumes. latency.cpp is an example.
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/resources/memory.hpp"
#include "base/resources/team.hpp"

namespace mm {

enum class Better { lower, higher, none };  ///< none: neither is better, as for the size of a cache
enum class Kind { integer, real, size, sizes, time, text, choice, choices, cpus, integers, flag };

struct Parameter {
  std::string name;  ///< as in conditions, with the unit last: "footprint_bytes"
  std::string help;
  std::string unit;  ///< "" if it has none
  Kind kind;
  std::string default_value;  ///< as a user would write it
  std::optional<double> minimum{}, maximum{};
  std::vector<std::string> choices{};
  std::string option{};      ///< "--footprint"; if empty, derived from the name without its unit
  bool per_process = false;  ///< the value is a list; each process measures one of its entries
};

/// Parameters whose values are names from a list: exactly one, or several.
Parameter choice(std::string name, std::string help, std::string default_value, std::vector<std::string> allowed);
Parameter choices(std::string name, std::string help, std::string default_value, std::vector<std::string> allowed);

struct Metric {
  std::string name, help, unit;
  Better better;
};

/// Operands and operations per element of a kernel's arrays; the traffic of a kernel is derived from them.
struct KernelWork {
  std::string name;
  int reads, writes;  ///< operands, each counted once
  int allocates;      ///< operands whose cache lines write-allocate (regular) stores read first
  int flops;
};

struct Description {
  std::string name, summary, detail, source;
  std::vector<std::string> spoils, needs;
  std::vector<Parameter> parameters;  ///< specific ones; the common parameters are added
  std::vector<Metric> metrics;
  std::vector<std::string> identity;    ///< condition keys that distinguish its points
  std::vector<std::string> observed{};  ///< condition keys that it observes, besides those that the harness observes
  double bytes_per_iteration = 0, flops_per_iteration = 0;
  std::vector<KernelWork> kernels{};  ///< set if there are several that a view or a model must distinguish
  bool ranks = false;  ///< runs on many processes: the launcher places them, and the library allocates memory
};

/// One value per metric of one timed batch, in the metrics' units.
using Values = std::vector<double>;

/// One set of conditions to measure.
struct Point {
  json conditions;                   ///< scalars; must contain every identity key that applies
  std::vector<std::string> metrics;  ///< names; `burst` returns one value for each, in this order
  /// The threads that work. With a team, `prepare` and `burst` run on the main thread and call team->run themselves.
  /// Without a team, they run on a separate thread pinned to `cpu`.
  std::shared_ptr<Team> team{};
  int cpu = -1;
  std::function<void()> prepare{};  ///< called before each burst, untimed, for example to warm caches; may be empty
  /// Runs one timed batch of about 1 to 20 ms. Throws Failure if the result is wrong, and Absent (as `prepare` may) if
  /// it is unavailable. With a team, it calls team->run.
  std::function<Values()> burst;
  /// Called after the last burst. Returns observed conditions to add, e.g. {"huge_share": 1.0}; may be empty.
  std::function<json()> observe{};
  /// Called after the last burst. Returns flags to add, e.g. {"unverified"}; may be empty.
  std::function<std::vector<std::string>()> check{};
  /// Arenas that Run verifies (a subset if there are many): it adds the conditions huge_share and observed_node, and
  /// the flags page_size and misplaced.
  std::vector<std::shared_ptr<Arena>> arenas{};
  std::size_t bytes_each = 0;  ///< bytes that each CPU accesses repeatedly; 0 if the point has no such size
  int least_samples = 7;       ///< lower it only for work that takes seconds (dgemm of a large N)
  bool shield = true;          ///< false for bursts that take longer than 0.1 s, sleep or start processes
  /// False if the threads of the team do not do the work: another process does it (fio), or they sleep. Their
  /// migrations, involuntary switches and page faults then do not mark the sample. Slow reference loops still do.
  bool timed_inside = true;
  bool once = false;  ///< only one sample is possible (a residual, a system that takes minutes)
  /// If set, the point is not measured, and this reason is reported. The point still gets a number, so that a resumed
  /// run gives every point the same number.
  std::optional<Absent> missing{};
  bool width_of_first_only = false;  ///< only the first metric must reach the requested interval
};

/// Result of one metric at one point.
struct Outcome {
  json conditions;
  std::string metric;
  std::vector<double> samples;
  double value = 0;
  std::vector<std::string> flags;
};

/// What a run with certain arguments needs.
struct PlannedRun {
  double relative_points =
      1;                    ///< number of points over the number with default arguments, as far as lists determine it
  double memory_scale = 1;  ///< at least 1: by which budgets grow because this machine has large caches
  double budget_s = 0;      ///< --budget, or the default, which grows with both
  std::optional<std::size_t> memory_bytes;  ///< what the footprint "memory" means here; nullopt if no argument has it
};

class Run {
 public:
  // Parameters, by name. Reading a parameter that the description lacks is a bug and throws std::logic_error.
  long long integer(std::string_view name) const;
  double real(std::string_view name) const;
  std::size_t bytes(std::string_view name) const;
  double time_s(std::string_view name) const;
  std::string text(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::vector<std::size_t> sizes(std::string_view name) const;
  std::vector<std::string> choices(std::string_view name) const;
  /// Returns whether a parameter of kind choices contains "all" or one of these values.
  bool selects(std::string_view name, std::initializer_list<std::string_view> any) const;
  /// Returns a parameter of Kind::integers. "all" stands for `all`, which the instrument supplies.
  std::vector<int> integers(std::string_view name, int all) const;
  /// Returns a parameter of Kind::integers that counts threads or processes. Throws UsageError if a value exceeds the
  /// number of `cpus`.
  std::vector<int> team_sizes(std::string_view name, const std::vector<int>& cpus) const;
  bool given(std::string_view name) const;  ///< the parameter is on the command line
  bool has(std::string_view name) const;    ///< the instrument has this parameter

  // Common parameters.
  std::vector<int> cpus() const;  ///< --cpus, checked against the allowed set; default: all allowed
  /// Returns the CPUs for an instrument that measures one CPU at a time: each CPU of --cpus, or the first allowed CPU
  /// if --cpus is not given.
  std::vector<int> single_cpus() const;
  std::vector<Pages> pages() const;       ///< --pages: a list, "4KiB,thp"
  Pages single_pages() const;             ///< the value of --pages; refuses a list
  std::vector<int> memory_nodes() const;  ///< --memory-node: a node, a list or "all"; empty if not given
  std::vector<int> placed_nodes() const;  ///< memory_nodes(), or -1 (the policy places memory) if none is given
  int single_node() const;                ///< the value of --memory-node, or -1 if not given; refuses a list
  /// Returns the value of the condition memory_node for an element of placed_nodes(): the node, or "local" or
  /// "interleave" for -1.
  json memory_node(int node) const;
  Policy policy() const;  ///< --policy local|interleave|node (node when --memory-node is given)
  double budget_s() const;
  std::uint64_t seed() const;

  /// Parses every parameter by its kind and limits, so that invalid values are refused before any work. Throws
  /// UsageError.
  void check() const;

  /// Plans the run without measuring. Throws UsageError.
  PlannedRun plan() const;

  /// Throws a UsageError, which leads to exit status 2 and a message on one line. `allowed` lists valid values.
  [[noreturn]] void refuse(const std::string& field, const std::string& message, const std::string& allowed = {}) const;
  /// Reports that a metric is unavailable here; the run continues.
  void absent(const std::string& metric, const json& conditions, const std::string& reason,
              const std::string& enable = {});

  /// Returns an arena on `node` (-1: by policy), or nullptr after it wrote an `absent` line (not enough memory, no huge
  /// pages …).
  std::shared_ptr<Arena> arena(std::size_t bytes, Pages pages, int node, int touch_cpu, const std::string& metric,
                               const json& conditions);
  /// Returns how many bytes can be touched within this share of the remaining budget, at a rate that it measures now.
  /// Touching memory uses up the budget like any other preparation.
  std::size_t affordable_bytes(Pages pages, double share) const;
  /// Returns the team of these CPUs, which is created once and shared.
  std::shared_ptr<Team> team(const std::vector<int>& cpus);
  /// Releases all teams; a team ends when no point uses it any more.
  void release_teams();

  /// Measures all points in rounds, one burst per visit, until each 95 % interval is as narrow as requested or the
  /// budget ends; writes results as they become available. May be called repeatedly (the budget is shared). Returns one
  /// outcome per metric and point, including the points of a resumed run, without points that failed.
  std::vector<Outcome> measure(std::vector<Point> points);

  /// Limits the next call of `measure` to this share of the remaining budget.
  void allot(double share);

  /// Reports a value derived from outcomes (a plateau, a knee).
  void derive(const std::string& metric, const std::vector<double>& samples, json conditions,
              std::vector<std::string> flags, const std::string& derived_from);

  // For instruments with their own loop, which sample on many processes at once (native/mpi).
  double left_s() const;  ///< rest of the budget
  /// Returns the time, by wall_s(), until which a point may still take its first sample: shortly after the end of the
  /// budget.
  double last_call_s() const;
  Absent out_of_budget() const;  ///< the reason to report for a point without a sample
  /// Returns the number of the next point, and whether an earlier output contains it completely.
  std::pair<std::size_t, bool> next_point();
  /// Returns the values and marks of a point's samples in an earlier output.
  std::vector<std::pair<Values, int>> earlier(std::size_t point) const;
  void processes(const json& all);  ///< host, pid and cpu of each process; written to the header
  /// Writes a sample. `begun_s` is its start by wall_s(); negative if unknown.
  void sample(std::size_t point, const Values& values, int marks, double begun_s = -1);
  void report(std::size_t point, const std::string& metric, const std::vector<double>& samples, json conditions,
              const std::vector<std::string>& flags, const std::string& start, double spent_s);
  void finish(std::size_t point, const json& conditions);  ///< after the last `report` of the point

  /// Writes a progress line, at most one a second, so that a long preparation does not trigger the reader's watchdog.
  void beat(const std::string& note);

  struct State;
  explicit Run(State& state) : state_(state) {}

 private:
  State& state_;
};

/// Increases the number of iterations until a batch takes at least `target_s` twice in a row, or far longer once, and
/// returns that number. `batch_s(n)` runs n iterations and returns their time in s.
std::uint64_t iterations_for(double target_s, const std::function<double(std::uint64_t)>& batch_s,
                             std::uint64_t start = 1, std::uint64_t max = std::uint64_t{1} << 40);

/// Sets the bursts of a point to batches of about `target_s`. `batch_s(n)` runs n iterations and returns their time in
/// s; `values(n, s)` computes the metrics of that burst. The first visit determines n, starting at `start`.
void time_batches(Point& point, double target_s, const std::function<double(std::uint64_t)>& batch_s,
                  const std::function<Values(double n, double took_s)>& values, std::uint64_t start = 1);

/// Prevents the compiler from removing the computation of a value. This may require storing the value in memory.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

/// An instrument, which registers itself by name.
struct Instrument {
  Instrument(const Description& description, void (*measure)(Run&));
  const Description& description;
  void (*measure)(Run&);
};

const std::vector<const Instrument*>& instruments();

}  // namespace mm
