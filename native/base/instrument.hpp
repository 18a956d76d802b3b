#pragma once
/// What an instrument is: a description, and a function that turns parameters into points to be measured.
///
/// An instrument is one file in native/instruments and one line of CMake. It parses nothing and prints nothing: it
/// reads parameters from `Run`, allocates and binds memory, builds `Point`s and hands them to `Run::measure`,
/// which repeats, shields, watches, flags, prints and resumes. See latency.cpp for the pattern.
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "error.hpp"
#include "json.hpp"
#include "memory.hpp"
#include "team.hpp"

namespace mm {

enum class Better { lower, higher, none };  ///< none: neither good nor bad, such as a size of a cache
enum class Kind { integer, real, size, sizes, time, text, choice, choices, cpus, integers, flag };

struct Parameter {
  std::string name;  ///< as in conditions, unit last: "footprint_bytes"
  std::string help;
  std::string unit;  ///< "" for none
  Kind kind;
  std::string default_value;  ///< default as text, as a user would write it
  std::optional<double> minimum{}, maximum{};
  std::vector<std::string> choices{};
  std::string option{};  ///< "--footprint"; derived from the name (unit cut off) when empty
};

/// Parameters whose values are names from a list: one of them, or several.
Parameter choice(std::string name, std::string help, std::string default_value, std::vector<std::string> allowed);
Parameter choices(std::string name, std::string help, std::string default_value, std::vector<std::string> allowed);

struct Metric {
  std::string name, help, unit;
  Better better;
};

/// What a kernel moves and computes for each element of its arrays: what others count its traffic by.
struct KernelWork {
  std::string name;
  int reads, writes;  ///< operands, each once
  int allocates;      ///< lines that ordinary stores read first
  int flops;
};

struct Description {
  std::string name, summary, detail, source;
  std::vector<std::string> spoils, needs;
  std::vector<Parameter> parameters;  ///< its own; the common ones are added
  std::vector<Metric> metrics;
  std::vector<std::string> identity;  ///< condition keys that tell its points apart
  double bytes_per_iteration = 0, flops_per_iteration = 0;
  std::vector<KernelWork> kernels{};  ///< where there are several that a view or a model must tell apart
  bool ranks = false;  ///< of many processes: who started them has placed them, and memory is the library's affair
};

/// One value a metric of one timed batch, in the metrics' units.
using Values = std::vector<double>;

/// One set of conditions to be measured.
struct Point {
  json conditions;                   ///< scalars; must hold every identity key that applies
  std::vector<std::string> metrics;  ///< names; `burst` returns one value for each, in this order
  /// Who works. With a team, `prepare` and `burst` are called on the main thread and call team->run themselves.
  /// Without, they are called on a thread of their own that is pinned to `cpu`.
  std::shared_ptr<Team> team{};
  int cpu = -1;
  std::function<void()> prepare{};  ///< untimed, before each burst: warm caches; may be empty
  /// One timed batch of about 1 to 20 ms. Throw Failure if the result is wrong, Absent (here or in `prepare`) if it
  /// cannot be had. With a team it calls team->run.
  std::function<Values()> burst;
  /// After the last burst: observed conditions to add, e.g. {"huge_share": 1.0}; may be empty.
  std::function<json()> observe{};
  /// After the last burst: flags to add, e.g. {"unverified"}; may be empty.
  std::function<std::vector<std::string>()> check{};
  /// Verified by Run (some of them where there are many): huge_share, observed_node, flags page_size and misplaced.
  std::vector<std::shared_ptr<Arena>> arenas{};
  int least_samples = 7;     ///< fewer only for work that takes seconds (dgemm of a large N)
  bool shield = true;        ///< false for bursts that last longer than 0.1 s or that sleep or start processes
  bool timed_inside = true;  ///< false: others do the work (fio); switches and canaries of our thread say nothing of it
  bool once = false;         ///< one sample is all there is to have (a residual, a system that takes minutes)
  /// Why it is not measured at all: reported instead. Its number is taken all the same, so that an output that goes on
  /// with an earlier one has the same points.
  std::optional<Absent> missing{};
  bool width_of_first_only = false;  ///< the other metrics ride along and need no interval of the asked width
};

/// What came of one metric of one point.
struct Outcome {
  json conditions;
  std::string metric;
  std::vector<double> samples;
  double value = 0;
  std::vector<std::string> flags;
};

class Run {
 public:
  // Parameters, by name. A parameter that is absent from the description is a bug and throws std::logic_error.
  long long integer(std::string_view name) const;
  double real(std::string_view name) const;
  std::size_t bytes(std::string_view name) const;
  double time_s(std::string_view name) const;
  std::string text(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::vector<std::size_t> sizes(std::string_view name) const;
  std::vector<std::string> choices(std::string_view name) const;
  /// Whether an option of choices says "all" or one of these words.
  bool asks(std::string_view name, std::initializer_list<std::string_view> any) const;
  /// For Kind::integers; "all" means `all`, which the instrument knows.
  std::vector<int> integers(std::string_view name, int all) const;
  /// For Kind::integers that are numbers of threads or processes: at most one for each of `cpus`. UsageError for more.
  std::vector<int> team_sizes(std::string_view name, const std::vector<int>& cpus) const;
  bool given(std::string_view name) const;  ///< the user wrote it

  // Common parameters.
  std::vector<int> cpus() const;          ///< --cpus, checked against the allowed set; default: all allowed
  std::vector<Pages> pages() const;       ///< --pages: a list, "4KiB,thp"
  std::vector<int> memory_nodes() const;  ///< --memory-node N or list or "all"; empty: not given
  Policy policy() const;                  ///< --policy local|interleave|node (node when --memory-node is given)
  double budget_s() const;
  std::uint64_t seed() const;

  /// Reads every parameter by its kind and limits, so that a wrong one is refused before any work. UsageError.
  void check() const;

  /// A usage error: exit status 2 with one line. `allowed` says what would do.
  [[noreturn]] void refuse(const std::string& field, const std::string& message, const std::string& allowed = {}) const;
  /// Reports something that cannot be had here; the run goes on.
  void absent(const std::string& metric, const json& conditions, const std::string& reason,
              const std::string& enable = {});

  /// Arena on `node` (-1: by policy) or nullptr after an `absent` line (not enough memory, no huge pages …).
  std::shared_ptr<Arena> arena(std::size_t bytes, Pages pages, int node, int touch_cpu, const std::string& metric,
                               const json& conditions);
  /// How much memory can be touched in this share of the budget that is left, B: what is prepared counts as well.
  std::size_t affordable_bytes(Pages pages, double share) const;
  /// A team of these CPUs, made once and shared.
  std::shared_ptr<Team> team(const std::vector<int>& cpus);
  /// Lets go of all teams that no point holds any more.
  void release_teams();

  /// Measures all points in rounds, one burst a visit, until each one's 95 % interval is inside the asked width or
  /// the budget ends; writes results as they are ready. May be called more than once (the budget is shared).
  /// Returns one outcome a metric a point, also those of an earlier, resumed run; a point that failed is missing.
  std::vector<Outcome> measure(std::vector<Point> points);

  /// Gives the next call of `measure` this share of the budget that is left.
  void allot(double share);

  /// Reports a value derived from outcomes (a plateau, a knee).
  void derive(const std::string& metric, const std::vector<double>& samples, json conditions,
              const std::vector<std::string>& flags, const std::string& derived_from);

  // For instruments with a loop of their own, whose samples are taken on many processes at once (native/mpi).
  double left_s() const;  ///< of the budget
  /// Until then, by wall_s(), a point may still get its first sample: a little after the end of the budget.
  double last_call_s() const;
  Absent out_of_budget() const;  ///< what a point without a sample is then
  /// The number of the next point, and whether an earlier output holds all of it.
  std::pair<std::size_t, bool> next_point();
  /// Values and marks of the samples of a point that an earlier output holds.
  std::vector<std::pair<Values, int>> earlier(std::size_t point) const;
  void processes(const json& all);  ///< host, pid and cpu of each: in the header
  /// `begun_s`: when, by wall_s(); less than 0: not told.
  void sample(std::size_t point, const Values& values, int marks, double begun_s = -1);
  void report(std::size_t point, const std::string& metric, const std::vector<double>& samples, json conditions,
              const std::vector<std::string>& flags, const std::string& start, double spent_s);
  void finish(std::size_t point, const json& conditions);  ///< after the last `report` of the point

  /// A line to keep the reader's watchdog quiet in long preparations (at most one a second is printed).
  void beat(const std::string& note);

  struct State;
  explicit Run(State& state) : state_(state) {}

 private:
  State& state_;
};

/// Doubles the iterations until one batch takes at least `target_s`; returns that count. `batch(n)` runs n iterations.
std::uint64_t iterations_for(double target_s, const std::function<double(std::uint64_t)>& batch_s,
                             std::uint64_t start = 1, std::uint64_t most = std::uint64_t{1} << 40);

/// Gives a point bursts of about `target_s`: `batch_s(n)` runs n iterations and returns their time in s; `values(n, s)`
/// are the metrics of that burst. n is found at the first visit, from `start` upwards.
void time_batches(Point& point, double target_s, std::function<double(std::uint64_t)> batch_s,
                  std::function<Values(double n, double took_s)> values, std::uint64_t start = 1);

/// Keeps a value alive without storing it.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

/// Registers itself by name.
struct Instrument {
  Instrument(const Description& description, void (*measure)(Run&));
  const Description& description;
  void (*measure)(Run&);
};

const std::vector<const Instrument*>& instruments();

}  // namespace mm
