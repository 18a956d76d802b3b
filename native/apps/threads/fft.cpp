/// fft: complex Fourier transforms of one to three dimensions by the installed FFTW.
#include <charconv>
#include <cmath>

#include "apps/libraries/fftw.hpp"
#include "base/clock.hpp"
#include "base/options/options.hpp"
#include "base/text.hpp"
#include "instruments/compute/dense.hpp"

namespace {

using mm::json;

const mm::Description kFft{
    .name = "fft",
    .summary = "rate of complex Fourier transforms in one to three dimensions by the installed FFTW",
    .detail =
        "Transforms of double precision from one array into another; they count as 5 N log2 N operations for N "
        "numbers. The library plans by trials (measure), or by rules (estimate), before the clock starts; the "
        "condition planning states whether half of the budget sufficed for all trials. Transforming a sum of three "
        "waves gives three peaks, and the backward transform restores it; both are compared with the exact values.\n"
        "example: meshmark-probe fft --shape 1048576,1024x1024,128x128x128 --threads 1,all",
    .source = "Frigo, Johnson: The Design and Implementation of FFTW3, Proc. IEEE 93 (2005); HPC Challenge FFT",
    .spoils = {"arrays that fit into a cache at one size and not at the next",
               "other load: the library's threads wait for the slowest one"},
    .needs = {"FFTW 3"},
    .parameters = {{"shape", "sizes, N, NxN or NxNxN, with commas between", "", mm::Kind::text,
                    "65536,1048576,1024x1024,128x128x128"},
                   mm::library_threads(),
                   mm::choice("planner", "by trials, or by rules", "measure", {"measure", "estimate"})},
    .metrics = {{"flop_rate", "5 N log2 N over time", "flop/s", mm::Better::higher},
                {"array_bandwidth", "both arrays once, over time", "B/s", mm::Better::higher}},
    .identity = {"shape", "threads", "planner", "pages"},
    .observed = {"planning"},
    .bytes_per_iteration = 32,
    .flops_per_iteration = 0,
};

using Complex = mm::Fftw::Complex;

std::vector<int> parse_shape(const mm::Run& run, const std::string& text) {
  std::vector<int> shape;
  for (const std::string& word : mm::split(text, 'x')) {
    int n = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
    if (error != std::errc() || end != word.data() + word.size() || n < 2 || n > (1 << 28) || shape.size() == 3)
      run.refuse("shape", "found '" + text + "'", "N, NxN or NxNxN, each from 2 to 268435456");
    shape.push_back(n);
  }
  return shape;
}

/// Arrays and plans of one shape.
struct FftwTransform {
  std::vector<int> shape;
  std::size_t count = 1;
  std::shared_ptr<mm::Arena> arena;
  Complex *in, *out;
  std::unique_ptr<mm::Fftw::Plan> forward, backward;
  bool cut = false;  // whether planning by trials stopped at its time limit

  /// Returns the frequency of wave k, of three, in a dimension. The height of the wave is `height(k)`.
  std::size_t frequency(std::size_t k, std::size_t dimension) const {
    return (k * 5 + dimension * 3 + 1) % static_cast<std::size_t>(shape[dimension]);
  }
  static double height(std::size_t k) { return 1.0 + static_cast<double>(k); }

  void fill() const {
    std::vector<std::vector<Complex>> roots;  // by dimension: exp(2 pi i j / n)
    for (const int n : shape) {
      roots.emplace_back();
      for (int j = 0; j < n; ++j) roots.back().push_back(std::polar(1.0, 2 * M_PI * j / n));
    }
    std::vector<std::size_t> coordinates(shape.size(), 0);
    for (std::size_t i = 0; i < count; ++i) {
      Complex sum = 0;
      for (std::size_t k = 0; k < 3; ++k) {
        Complex wave = height(k);
        for (std::size_t d = 0; d < shape.size(); ++d)
          wave *= roots[d][coordinates[d] * frequency(k, d) % static_cast<std::size_t>(shape[d])];
        sum += wave;
      }
      in[i] = sum;
      for (std::size_t d = shape.size(); d-- > 0;) {
        if (++coordinates[d] < static_cast<std::size_t>(shape[d])) break;
        coordinates[d] = 0;
      }
    }
  }

  /// Returns the value that the forward transform should have at index i.
  double expected(std::size_t i) const {
    double sum = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      std::size_t place = 0;
      for (std::size_t d = 0; d < shape.size(); ++d)
        place = place * static_cast<std::size_t>(shape[d]) + frequency(k, d);
      if (place == i) sum += height(k) * static_cast<double>(count);
    }
    return sum;
  }

  /// Returns the largest error of the forward and of the backward transform, over eps log2 N and the largest value.
  double error() const {
    forward->run();
    const double scale = 2.2e-16 * std::log2(static_cast<double>(count));
    double worst = 0;
    for (std::size_t i = 0; i < count; ++i)
      worst = std::max(worst, std::abs(out[i] - expected(i)) / (6 * scale * static_cast<double>(count)));
    const std::vector<Complex> before(in, in + count);
    backward->run();
    for (std::size_t i = 0; i < count; ++i)
      worst = std::max(worst, std::abs(in[i] / static_cast<double>(count) - before[i]) / (6 * scale));
    return worst;
  }
};

void add_point(mm::Run& run, std::vector<mm::Point>& points, const std::shared_ptr<const mm::Fftw>& library,
               const std::string& text, mm::Pages pages, const std::vector<int>& cpus, double plan_s) {
  const auto t = std::make_shared<FftwTransform>();
  t->shape = parse_shape(run, text);
  for (const int n : t->shape) t->count *= static_cast<std::size_t>(n);
  mm::Point p;
  p.conditions = {{"shape", text},
                  {"threads", cpus.size()},
                  {"cpus", mm::cpu_list(cpus)},
                  {"planner", run.text("planner")},
                  {"pages", mm::name(pages)},
                  {"memory_node", run.memory_node(run.single_node())},
                  {"library_version", library->version},
                  {"library_path", library->path}};
  const double bytes = static_cast<double>(t->count) * sizeof(Complex);
  t->arena = run.arena(2 * (t->count * sizeof(Complex) + 4096), pages, run.single_node(), cpus.front(), "flop_rate",
                       p.conditions);
  if (!t->arena) return;
  t->in = t->arena->as<Complex>().data();
  t->out = t->in + t->count + 256;
  p.metrics = {"flop_rate", "array_bandwidth"};
  p.team = run.team(cpus);
  p.arenas = {t->arena};
  p.shield = false;  // raising only the priority of our threads would delay the library's threads
  const double flops = 5.0 * static_cast<double>(t->count) * std::log2(static_cast<double>(t->count));
  const auto batch = std::make_shared<std::uint64_t>(0);
  const bool measured = run.text("planner") == "measure";
  const auto work = [=](std::uint64_t n) {
    const mm::Ticks begin = mm::ticks();
    for (std::uint64_t i = 0; i < n; ++i) t->forward->run();
    return mm::seconds(mm::ticks() - begin);
  };
  p.prepare = [=, &run] {
    if (*batch != 0) return;
    run.beat("planning " + text);
    library->limit_planning(plan_s);
    const mm::Ticks begin = mm::ticks();
    t->forward = std::make_unique<mm::Fftw::Plan>(*library, t->shape, t->in, t->out, true, measured);
    t->cut = measured && mm::seconds(mm::ticks() - begin) >= plan_s;
    t->backward = std::make_unique<mm::Fftw::Plan>(*library, t->shape, t->out, t->in, false, false);
    if (!t->forward->made() || !t->backward->made()) throw mm::Failure("FFTW made no plan for " + text);
    t->fill();  // planning overwrites the arrays
    *batch = mm::iterations_for(5e-3, work);
  };
  p.burst = [=] {
    const auto n = static_cast<double>(*batch);
    const double elapsed_s = work(*batch);
    return mm::Values{n * flops / elapsed_s, n * 2 * bytes / elapsed_s};
  };
  p.observe = [=] { return json{{"planning", !measured ? "by rules" : t->cut ? "cut short" : "complete"}}; };
  p.check = [=]() -> std::vector<std::string> {
    return t->error() < 16 ? std::vector<std::string>{} : std::vector<std::string>{"unverified"};
  };
  points.push_back(std::move(p));
}

void measure(mm::Run& run) {
  const std::vector<std::string> shapes = mm::split(run.text("shape"), ',');
  for (const std::string& text : shapes) parse_shape(run, text);
  const std::vector<int> cpus = mm::bind_for_library(run);
  const auto library = mm::Fftw::load(static_cast<int>(cpus.size()));
  const double plan_s = run.budget_s() / (2.0 * static_cast<double>(shapes.size() * run.pages().size()));
  std::vector<mm::Point> points;
  for (const mm::Pages pages : run.pages())
    for (const std::string& text : shapes) add_point(run, points, library, text, pages, cpus, plan_s);
  run.measure(std::move(points));
}

const mm::Instrument fft{kFft, measure};

}  // namespace
