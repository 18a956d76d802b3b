/// gyro: a four-dimensional field that is transposed between two layouts and back in every step.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "apps/ranks/apps.hpp"
#include "base/error.hpp"
#include "mpi/harness/batch.hpp"

namespace mm::mpi {
namespace {

constexpr int kVelocities = 64;  // 8 energies by 8 pitch angles
constexpr int kOrbit = 8;        // points along an orbit

/// Each row of ranks owns some modes; the ranks of a row divide the velocities of these modes in the first layout and
/// the radii in the second.
class Gyro : public MiniApplication {
 public:
  Gyro(int modes, int radii, const std::vector<int>& extent, int flops)
      : modes_(modes), radii_(radii), rows_(extent[0]), columns_(extent[1]), flops_(flops) {
    const int rank = World::get().rank();
    row_ = rank / columns_;
    column_ = rank % columns_;
    check(MPI_Comm_split(World::get().all(), row_, column_, &among_), "MPI_Comm_split");
    own_modes_ = modes / rows_;
    own_velocities_ = kVelocities / columns_;
    own_radii_ = radii / columns_;
    const std::size_t n = size(own_modes_, own_velocities_, radii_, kOrbit);
    for (std::vector<double>* f : {&first_, &second_, &back_, &out_, &in_}) f->assign(n, 0.0);
    part_ = n / static_cast<std::size_t>(columns_);
    for (int r = 0; r < World::get().size(); ++r)
      each_word(n, false, [&](std::size_t i) { sampled_.push_back(index_first(r / columns_, r % columns_, i)); });
  }
  ~Gyro() override { MPI_Comm_free(&among_); }
  Gyro(const Gyro&) = delete;
  Gyro& operator=(const Gyro&) = delete;

  json conditions() const override {
    return {{"modes", modes_},
            {"radii", radii_},
            {"velocities", kVelocities},
            {"orbit_points", kOrbit},
            {"grid", std::to_string(rows_) + "x" + std::to_string(columns_)},
            {"flops_per_point", 2 * flops_},
            {"block_bytes", part_ * 8}};
  }
  double steps() const override { return 1; }

  void run() override {
    transpose_([&] { forward(); });
    work(second_);
    transpose_([&] { back(); });
    work(back_);
    std::swap(first_, back_);
  }

  void add_checks(Case& c) override {
    c.fill = [this](std::uint32_t tag, bool whole) {
      if (whole)
        for (std::size_t i = 0; i < first_.size(); ++i) first_[i] = value(tag, index_first(row_, column_, i));
      else
        for (const std::size_t index : sampled_)
          if (const auto [is_local, word] = local_first(index); is_local) first_[word] = value(tag, index);
    };
    c.defects = [this](std::uint32_t tag, bool whole) {
      std::vector<Defect> defects;
      const auto verify = [&](const char* layout, double actual, std::size_t index) {
        const double expected = value(tag, index);
        if (actual != expected && defects.empty())
          defects.push_back({layout, index, word_of(expected), word_of(actual)});
      };
      if (whole)
        for (std::size_t i = 0; i < first_.size(); ++i) {
          verify("round trip", first_[i], index_first(row_, column_, i));
          verify("transposed", second_[i], index_second(i));
        }
      else
        for (const std::size_t index : sampled_) {
          if (const auto [is_local, word] = local_first(index); is_local) verify("round trip", first_[word], index);
          if (const auto [is_local, word] = local_second(index); is_local) verify("transposed", second_[word], index);
        }
      return defects;
    };
    c.extra_metrics.emplace_back("transpose_share");
    c.values = [split = c.values] {
      Values values = split();
      values.push_back(values[0] / (values[0] + values[1]));
      return values;
    };
  }

  std::vector<CommunicationPart> parts() override {
    return {{"alltoall", "transpose_time", &transpose_, part_ * 8,
             [this](std::size_t bytes) { return alltoall_alone(among_, bytes); }}};
  }

 private:
  static std::size_t size(int a, int b, int c, int d) {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c) *
           static_cast<std::size_t>(d);
  }
  /// Returns the value of a word, an integer of 48 bits, which is exact in double precision.
  static double value(std::uint32_t tag, std::size_t index) {
    return static_cast<double>((std::uint64_t{tag & 0xffff} << 32) | index);
  }

  /// Returns the global index of word i of a rank in the first layout: [mode][velocity][radius][orbit].
  std::size_t index_first(int row, int column, std::size_t i) const {
    const std::size_t inner = size(1, 1, radii_, kOrbit);
    const std::size_t mode = i / inner / static_cast<std::size_t>(own_velocities_) + size(row, own_modes_, 1, 1);
    const std::size_t velocity =
        i / inner % static_cast<std::size_t>(own_velocities_) + size(column, own_velocities_, 1, 1);
    return (mode * kVelocities + velocity) * inner + i % inner;
  }
  /// Returns the global index of this rank's word i in the second layout: [mode][radius][velocity][orbit].
  std::size_t index_second(std::size_t i) const {
    const std::size_t orbit = i % kOrbit, velocity = i / kOrbit % kVelocities;
    const std::size_t outer = i / kOrbit / kVelocities;
    const std::size_t radius = outer % static_cast<std::size_t>(own_radii_) + size(column_, own_radii_, 1, 1);
    const std::size_t mode = outer / static_cast<std::size_t>(own_radii_) + size(row_, own_modes_, 1, 1);
    return ((mode * kVelocities + velocity) * static_cast<std::size_t>(radii_) + radius) * kOrbit + orbit;
  }
  struct Coordinates {
    int mode, velocity, radius, orbit;
  };
  Coordinates coordinates(std::size_t index) const {
    const auto n = static_cast<std::size_t>(radii_);
    return {static_cast<int>(index / kOrbit / n / kVelocities), static_cast<int>(index / kOrbit / n % kVelocities),
            static_cast<int>(index / kOrbit % n), static_cast<int>(index % kOrbit)};
  }
  /// Returns whether this rank owns the word in the first layout, and its local index.
  std::pair<bool, std::size_t> local_first(std::size_t index) const {
    const Coordinates c = coordinates(index);
    const int mode = c.mode - row_ * own_modes_, velocity = c.velocity - column_ * own_velocities_;
    if (mode < 0 || mode >= own_modes_ || velocity < 0 || velocity >= own_velocities_) return {false, 0};
    return {true, size(mode * own_velocities_ + velocity, radii_, kOrbit, 1) + size(c.radius, kOrbit, 1, 1) +
                      static_cast<std::size_t>(c.orbit)};
  }
  std::pair<bool, std::size_t> local_second(std::size_t index) const {
    const Coordinates c = coordinates(index);
    const int mode = c.mode - row_ * own_modes_, radius = c.radius - column_ * own_radii_;
    if (mode < 0 || mode >= own_modes_ || radius < 0 || radius >= own_radii_) return {false, 0};
    return {true, size(mode * own_radii_ + radius, kVelocities, kOrbit, 1) + size(c.velocity, kOrbit, 1, 1) +
                      static_cast<std::size_t>(c.orbit)};
  }

  /// Visits the pieces of the message to or from every rank of the row: `visit(rank, mode, velocity, word)`, where
  /// `word` is the index of the piece's first word in the buffer. A piece contains a rank's radii of one mode and
  /// velocity.
  template <class Visit>
  void pieces(const Visit& visit) const {
    const std::size_t length = size(own_radii_, kOrbit, 1, 1);
    std::size_t word = 0;
    for (int r = 0; r < columns_; ++r)
      for (int mode = 0; mode < own_modes_; ++mode)
        for (int velocity = 0; velocity < own_velocities_; ++velocity, word += length) visit(r, mode, velocity, word);
  }
  void exchange() {
    const int n = static_cast<int>(part_);
    MPI_Alltoall(out_.data(), n, MPI_DOUBLE, in_.data(), n, MPI_DOUBLE, among_);
  }
  /// Returns the index in the first layout at which the radii of one rank begin.
  std::size_t at_first(int mode, int velocity, int rank) const {
    return size(mode * own_velocities_ + velocity, radii_, kOrbit, 1) + size(rank, own_radii_, kOrbit, 1);
  }
  /// Returns the index in the second layout of the orbit at one of this rank's radii and at `velocity` of `rank`.
  std::size_t at_second(int mode, int radius, int rank, int velocity) const {
    return size(mode * own_radii_ + radius, kVelocities, kOrbit, 1) +
           size(rank * own_velocities_ + velocity, kOrbit, 1, 1);
  }
  void forward() {
    pieces([&](int r, int mode, int velocity, std::size_t word) {
      std::memcpy(&out_[word], &first_[at_first(mode, velocity, r)], size(own_radii_, kOrbit, 8, 1));
    });
    exchange();
    pieces([&](int r, int mode, int velocity, std::size_t word) {
      for (int x = 0; x < own_radii_; ++x)
        std::memcpy(&second_[at_second(mode, x, r, velocity)], &in_[word + size(x, kOrbit, 1, 1)], kOrbit * 8);
    });
  }
  void back() {
    pieces([&](int r, int mode, int velocity, std::size_t word) {
      for (int x = 0; x < own_radii_; ++x)
        std::memcpy(&out_[word + size(x, kOrbit, 1, 1)], &second_[at_second(mode, x, r, velocity)], kOrbit * 8);
    });
    exchange();
    pieces([&](int r, int mode, int velocity, std::size_t word) {
      std::memcpy(&back_[at_first(mode, velocity, r)], &in_[word], size(own_radii_, kOrbit, 8, 1));
    });
  }

  /// Represents an application's work per point by `flops_` additions and multiplications. Nothing is stored.
  void work(const std::vector<double>& field) const {
    constexpr std::size_t kTogether = 8;
    double sums[kTogether] = {};
    for (std::size_t start = 0; start + kTogether <= field.size(); start += kTogether) {
      double y[kTogether] = {};
      for (int k = 0; k < flops_ / 2; ++k)
#pragma omp simd
        for (std::size_t i = 0; i < kTogether; ++i) y[i] = y[i] * 0.5 + field[start + i];
      for (std::size_t i = 0; i < kTogether; ++i) sums[i] += y[i];
    }
    keep(sums);
  }

  const int modes_, radii_, rows_, columns_, flops_;
  int row_ = 0, column_ = 0, own_modes_ = 0, own_velocities_ = 0, own_radii_ = 0;
  std::size_t part_ = 0;  // words that each rank of the row sends to each
  MPI_Comm among_ = MPI_COMM_NULL;
  std::vector<double> first_, second_, back_, out_, in_;
  std::vector<std::size_t> sampled_;  // indices that are verified after every block
  Channel transpose_;
};

const Description& gyro_description() {
  static const Description d{
      .name = "gyro",
      .summary = "a four-dimensional field transposed between two layouts by MPI_Alltoall: its share of a step",
      .detail =
          "modes x 64 velocities x radii x 8 points of an orbit, 8 bytes each, on a grid of ranks: each row owns some "
          "modes, and its ranks hold either some velocities and all radii, or all velocities and some radii. A step "
          "transposes forward and back by MPI_Alltoall in the row, and computes after each. The computation represents "
          "an application's work by a stated number of additions and multiplications per point. The field contains the "
          "index of every word and is verified in both layouts.\n"
          "example: mpirun -n 4 meshmark-comm gyro --modes 16,64",
      .source =
          "the transposes of GYRO (Candy, Waltz, J. Comput. Phys. 186, 2003), with 16 modes as in its case B1-std "
          "and 64 as in B3-gtc, fewer radii",
      .spoils = {"another process on a rank's CPU", "more ranks than CPUs"},
      .needs = {"an MPI library"},
      .parameters = {{"modes", "toroidal modes", "", Kind::integers, "16,64", 1, 1024},
                     {"radii", "radial points", "", Kind::integer, "32", 1, 1024},
                     {"grid", "rows of ranks by ranks that transpose, such as 2x4; auto: as square as possible", "",
                      Kind::text, "auto"},
                     {"flops", "additions and multiplications per point after each transpose", "", Kind::integer, "64",
                      2, 100000}},
      .metrics =
          [] {
            std::vector<Metric> metrics = {
                {"step_time", "time of a step, on the slowest rank", "s", Better::lower},
                {"transpose_time", "time per step in transposes, packing included, mean over ranks", "s",
                 Better::lower}};
            for (const Metric& m : compute_metrics()) metrics.push_back(m);
            metrics.push_back({"transpose_share", "share of the step in transposes", "1", Better::lower});
            return metrics;
          }(),
      .identity = {"modes", "radii", "flops_per_point", "grid", "ranks", "mpi"},
      .ranks = true,
  };
  return d;
}

/// Returns all rank grids that divide the field evenly, squarest first.
std::vector<std::vector<int>> extents(int ranks, int modes, int radii) {
  std::vector<std::vector<int>> grids;
  for (int columns = 1; columns <= ranks; ++columns)
    if (ranks % columns == 0 && modes % (ranks / columns) == 0 && std::gcd(kVelocities, radii) % columns == 0)
      grids.push_back({ranks / columns, columns});
  std::stable_sort(grids.begin(), grids.end(), [](const auto& a, const auto& b) {
    const auto deviation = [](const std::vector<int>& e) { return e[1] >= e[0] ? e[1] - e[0] : 2 * (e[0] - e[1]); };
    return deviation(a) < deviation(b);
  });
  return grids;
}

void measure_gyro(Run& run) {
  World& world = World::get();
  world.check_request(run);
  const auto modes = run.integers("modes", 16);
  const int radii = static_cast<int>(run.integer("radii"));
  const int flops = static_cast<int>(run.integer("flops"));
  CaseBatch batch(run, 1);
  for (const int m : modes) {
    std::vector<int> extent = gyro_extent(m, radii);
    if (const std::string grid = run.text("grid"); grid != "auto") {
      std::string names;
      extent.clear();
      for (const auto& e : extents(world.size(), m, radii)) {
        const std::string name = std::to_string(e[0]) + "x" + std::to_string(e[1]);
        names += ", " + name;
        if (name == grid) extent = e;
      }
      if (extent.empty()) throw UsageError("grid", "found " + quote(grid), "auto" + names);
    }
    Case plan;
    plan.metric = "step_time";
    plan.conditions = {{"modes", m}, {"radii", radii}};
    batch.add(plan, 5 * 8.0 * m * kVelocities * radii * kOrbit / world.size(),
              [&] { return program_case(std::make_shared<Gyro>(m, radii, extent, flops)); });
  }
  batch.done();
}

const Instrument gyro{gyro_description(), measure_gyro};

}  // namespace

std::vector<int> gyro_extent(int modes, int radii) {
  const int ranks = World::get().size();
  if (const auto grids = extents(ranks, modes, radii); !grids.empty()) return grids.front();
  std::set<int> possible_ranks;
  for (int rows = 1; rows <= modes; ++rows)
    for (int columns = 1; columns <= kVelocities; ++columns)
      if (!extents(rows * columns, modes, radii).empty()) possible_ranks.insert(rows * columns);
  std::string names;
  for (const int n : possible_ranks) names += (names.empty() ? "" : ", ") + std::to_string(n);
  throw UsageError("ranks",
                   "found " + std::to_string(ranks) + ", into which " + std::to_string(modes) + " modes, " +
                       std::to_string(kVelocities) + " velocities and " + std::to_string(radii) +
                       " radii cannot be divided evenly",
                   names);
}

std::shared_ptr<MiniApplication> make_gyro(int modes, int radii, const std::vector<int>& extent) {
  return std::make_shared<Gyro>(modes, radii, extent, 64);
}

}  // namespace mm::mpi
