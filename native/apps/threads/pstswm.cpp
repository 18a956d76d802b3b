/// pstswm: a spectral-transform shallow-water model, with three forms of its inner loops.
#include <algorithm>
#include <cmath>

#include "apps/pstswm/model.hpp"
#include "base/harness/provenance.hpp"
#include "base/topology/topology.hpp"
#include "instruments/compute/dense.hpp"

namespace {

using mm::json;
using mm::pstswm::Model;
using mm::pstswm::ShallowWaterProblem;
using mm::pstswm::Sphere;
using mm::pstswm::TestCase;
using mm::pstswm::Variant;

const mm::Description kPstswm{
    .name = "pstswm",
    .summary =
        "time of a step of a spectral-transform shallow-water model, by truncation, levels and form of the loops",
    .detail =
        "Triangular truncations 42, 85 and 170 with Gaussian grids of 128x64, 256x128 and 512x256 points and steps of "
        "20, 10 and 5 minutes. Levels are solved independently. plain: inner loops over levels, contiguous; vector: "
        "inner loops over latitudes, and over many rows of a Fourier transform, so that they are long for any number "
        "of levels; fixed: as plain, with the number of levels known to the compiler (1, 2, 4, 8, 16 or 18). Threads "
        "share one model: zonal wave numbers in the Legendre transforms and the step, pairs of latitudes in the "
        "Fourier transforms and products; they synchronize twice per step. The operation count is the additions and "
        "multiplications of the code, which are the same in all variants. Each sample begins with the initial state. "
        "Case 2 is compared with the analytic solution; in case 6, mass, energy and potential enstrophy must be "
        "conserved; and in both, all coefficients are compared with the coefficients of another variant on one "
        "thread.\n"
        "example: meshmark-probe pstswm --truncation T42,T85 --levels 1,18 --threads 1,all",
    .source =
        "Hack, Jakob: Description of a Global Shallow Water Model Based on the Spectral Transform Method, NCAR/TN-343 "
        "(1992); cases: Williamson et al., J. Comput. Phys. 102 (1992); the three forms: Cray X1 performance talk, Oak "
        "Ridge National Laboratory (2005), PSTSWM",
    .spoils = {"functions and waves that fit into a cache at one truncation or number of levels and not at the next",
               "threads on CPUs that other work uses: all wait for the slowest"},
    .needs = {},
    .parameters = {mm::choices("truncation", "highest wave number", "T42", {"T42", "T85", "T170"}),
                   {"levels", "numbers of levels, each 1 to 18", "", mm::Kind::integers, "1,18", 1, 18},
                   mm::choices("variant", "form of the inner loops", "plain,vector,fixed",
                               {"plain", "vector", "fixed"}),
                   [] {
                     auto p =
                         mm::choices("test_case", "2: steady zonal flow, 6: Rossby-Haurwitz wave", "6", {"2", "6"});
                     p.option = "--case";
                     return p;
                   }(),
                   {"steps", "steps of a sample", "", mm::Kind::integer, "4", 1, 100},
                   {"threads", "numbers of threads: a list, a range, all", "", mm::Kind::integers, "1,all", 1, 65536}},
    .metrics = {{"step_time", "time of a step of all levels", "s", mm::Better::lower},
                {"flop_rate", "additions and multiplications over time", "flop/s", mm::Better::higher},
                mm::peak_share()},
    .identity = {"truncation", "test_case", "levels", "variant", "steps", "threads", "pages", "memory_node"},
};

// Limits of the relative errors of a correct sample of at most 100 steps. Errors of the steady flow, of mass, and
// between variants are roundoff, at most 3e-14, 5e-16 and 6e-16 for T42 and T85. Energy and enstrophy are changed by
// the first step, the filter and the truncation of products, at most by 2.1e-6 and 1.8e-5.
constexpr double kSteadyError = 1e-12, kDifference = 1e-13, kMassDrift = 1e-13;
constexpr double kEnergyDrift = 2e-5, kEnstrophyDrift = 2e-4;

/// The settings that the points of one truncation, case and number of levels share.
struct SpectralSettings {
  std::shared_ptr<const Sphere> sphere;
  ShallowWaterProblem problem;
  int steps;
  mm::Pages pages;
  int node;  ///< -1: the policy decides
};

/// A model that has computed the steps of a sample on one thread.
class Reference {
 public:
  Reference(const SpectralSettings& settings, Variant variant) {
    ShallowWaterProblem problem = settings.problem;
    problem.variant = variant;
    problem.threads = 1;
    memory_.resize(Model::shared_doubles(*settings.sphere, problem) + Model::own_doubles(*settings.sphere, problem));
    model_ = std::make_unique<Model>(
        settings.sphere, problem, memory_.data(),
        std::vector<double*>{memory_.data() + Model::shared_doubles(*settings.sphere, problem)});
    for (const int level : {0, problem.levels - 1}) begun_.push_back(model_->invariants(level));
    model_->run_alone(settings.steps);
  }

  bool agrees(const Model& model) const {
    if (!(model.difference(*model_) <= kDifference)) return false;
    for (std::size_t i = 0; i < begun_.size(); ++i) {
      const int level = i == 0 ? 0 : model.levels() - 1;
      if (model.problem().test == TestCase::steady && !(model.steady_error(level) <= kSteadyError)) return false;
      const auto current = model.invariants(level);
      const auto within = [](double after, double before, double limit) {
        return std::fabs(after / before - 1) <= limit;
      };
      if (!within(current.mass, begun_[i].mass, kMassDrift) ||
          !within(current.energy, begun_[i].energy, kEnergyDrift) ||
          !within(current.enstrophy, begun_[i].enstrophy, kEnstrophyDrift))
        return false;
    }
    return true;
  }

 private:
  std::vector<double> memory_;
  std::unique_ptr<Model> model_;
  std::vector<Model::Invariants> begun_;
};

/// References of a group, created when first needed. Each point is compared with another variant.
class References {
 public:
  explicit References(const SpectralSettings& settings) : settings_(settings) {}
  const Reference& of(Variant variant) {
    auto& reference = variant == Variant::vector ? plain_ : vector_;
    if (!reference)
      reference = std::make_unique<Reference>(settings_, variant == Variant::vector ? Variant::plain : Variant::vector);
    return *reference;
  }

 private:
  SpectralSettings settings_;
  std::unique_ptr<Reference> plain_, vector_;
};

/// Returns why a problem cannot be measured, or nullopt if it can be.
std::optional<mm::Absent> obstacle(const SpectralSettings& settings, Variant variant, std::size_t threads) {
  const auto& fixed = mm::pstswm::kFixedLevels;
  if (variant == Variant::fixed && std::ranges::find(fixed, settings.problem.levels) == fixed.end())
    return mm::Absent("the variant fixed is not compiled for " + std::to_string(settings.problem.levels) + " levels",
                      "use --levels 1,2,4,8,16,18, or another variant");
  if (threads > static_cast<std::size_t>(settings.sphere->pairs()))
    return mm::Absent("T" + std::to_string(settings.sphere->truncation()) + " has " +
                          std::to_string(settings.sphere->pairs()) + " pairs of latitudes for " +
                          std::to_string(threads) + " threads",
                      "use fewer --threads or a larger --truncation");
  return std::nullopt;
}

/// Returns a model in arenas, or nullptr after an `absent` line.
std::shared_ptr<Model> make_model(mm::Run& run, const SpectralSettings& settings, const ShallowWaterProblem& problem,
                                  const std::vector<int>& cpus, mm::Point& p) {
  const auto arena = [&](std::size_t doubles, int cpu) -> double* {
    auto block = run.arena(8 * doubles, settings.pages, settings.node, cpu, "step_time", p.conditions);
    if (!block) return nullptr;
    p.arenas.push_back(block);
    return block->as<double>().data();
  };
  double* const shared = arena(Model::shared_doubles(*settings.sphere, problem), cpus.front());
  std::vector<double*> thread_memory;
  for (const int cpu : cpus) {
    if (shared == nullptr || (!thread_memory.empty() && thread_memory.back() == nullptr)) return nullptr;
    thread_memory.push_back(arena(Model::own_doubles(*settings.sphere, problem), cpu));
  }
  if (thread_memory.back() == nullptr) return nullptr;
  return std::make_shared<Model>(settings.sphere, problem, shared, std::move(thread_memory));
}

void add_point(mm::Run& run, std::vector<mm::Point>& points, const SpectralSettings& settings,
               const std::string& variant, const std::vector<int>& cpus,
               const std::shared_ptr<References>& references) {
  ShallowWaterProblem problem = settings.problem;
  problem.variant = variant == "plain" ? Variant::plain : variant == "vector" ? Variant::vector : Variant::fixed;
  problem.threads = static_cast<int>(cpus.size());
  mm::Point p;
  p.conditions = {{"truncation", "T" + std::to_string(settings.sphere->truncation())},
                  {"test_case", std::to_string(static_cast<int>(problem.test))},
                  {"levels", problem.levels},
                  {"variant", variant},
                  {"steps", settings.steps},
                  {"threads", cpus.size()},
                  {"cpus", mm::cpu_list(cpus)},
                  {"isa", problem.isa},
                  {"compiler", mm::kCompilerVersion},
                  {"pages", mm::name(settings.pages)},
                  {"page_bytes", mm::page_bytes(settings.pages)},
                  {"memory_node", run.memory_node(settings.node)}};
  p.metrics = {"step_time", "flop_rate", "peak_share"};
  p.team = run.team(cpus);
  p.missing = obstacle(settings, problem.variant, cpus.size());
  if (p.missing) return points.push_back(std::move(p));
  run.beat("preparing " + variant);
  const std::shared_ptr<Model> model = make_model(run, settings, problem, cpus, p);
  if (!model) return;
  p.conditions["grid_points"] = settings.sphere->longitudes() * settings.sphere->latitudes();
  p.conditions["simulated_step_s"] = model->step_s();
  p.conditions["step_flops"] = model->flops();
  p.shield = false;  // a step of many levels takes longer than a burst at real-time priority may
  p.width_of_first_only = true;
  const auto peak = std::make_shared<double>(0);
  const auto team = p.team;
  const int steps = settings.steps;
  const auto warm = std::make_shared<bool>(false);
  p.prepare = [=] {
    *peak = mm::peak_now(*team);
    if (!*warm) team->run([&](int rank) { model->run(rank, 1); });
    *warm = true;
    model->begin();
  };
  p.burst = [=] {
    team->run([&](int rank) { model->run(rank, steps); });
    const double step_s = team->elapsed_s() / steps, rate = model->flops() / step_s;
    return mm::Values{step_s, rate, *peak > 0 ? rate / *peak : 0};
  };
  p.check = [=]() -> std::vector<std::string> {
    return references->of(problem.variant).agrees(*model) ? std::vector<std::string>{}
                                                          : std::vector<std::string>{"unverified"};
  };
  points.push_back(std::move(p));
}

void measure(mm::Run& run) {
  const std::vector<int> order = mm::fill_order("cores", run.cpus());
  const auto threads = run.team_sizes("threads", order);
  const auto variants = run.choices("variant");
  const std::vector<int> nodes = run.placed_nodes();
  const std::string_view isa = mm::best_fixed_isa();
  std::vector<SpectralSettings> groups;
  for (const std::string& truncation : run.choices("truncation")) {
    const auto sphere = std::make_shared<const Sphere>(std::stoi(truncation.substr(1)));
    for (const std::string& test : run.choices("test_case"))
      for (const int levels : run.integers("levels", mm::pstswm::kMaxLevels))
        for (const mm::Pages pages : run.pages())
          for (const int node : nodes)
            groups.push_back({sphere,
                              {.levels = levels, .test = test == "2" ? TestCase::steady : TestCase::wave, .isa = isa},
                              static_cast<int>(run.integer("steps")),
                              pages,
                              node});
  }
  // One group is measured after the other, since memory may suffice for only one. The variants of a group are measured
  // in rounds, so that they can be compared.
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto references = std::make_shared<References>(groups[i]);
    std::vector<mm::Point> points;
    for (const std::string& variant : variants)
      for (const int t : threads)
        add_point(run, points, groups[i], variant, {order.begin(), order.begin() + t}, references);
    run.allot(1.0 / static_cast<double>(groups.size() - i));
    run.measure(std::move(points));
  }
}

const mm::Instrument pstswm{kPstswm, measure};

}  // namespace
