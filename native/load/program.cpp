#include "load/program.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/json.hpp"
#include "base/options/fields.hpp"

namespace mm::load {
namespace {

using workloads::CountColumn;

constexpr std::uint64_t kMaxCalls = std::uint64_t{1} << 29;

}  // namespace

SyntheticProgram read_program(const std::string& path) {
  const std::string shown = shown_path(path);
  const FileContent input = read_input(path);
  if (!input.wrong.empty()) throw Failure(shown + ": " + input.wrong + "; allowed: " + input.allowed);
  const json root = parse_json(input.text);
  if (!root.is_object()) throw Failure(shown + ": not a JSON object");
  const Fields file{root, shown};
  if (file.text("format") != "meshmark load program") file.refuse("format", file.at("format"), "meshmark load program");
  if (file.whole("version", 0, 1 << 20) != 1) file.refuse("version", file.at("version"), "1");
  SyntheticProgram program;
  const json& target = file.at("prescription");
  if (!target.is_object()) file.refuse("prescription", target, "an object");
  const Fields prescription{target, shown + ": prescription"};
  program.name = target.contains("name") ? prescription.text("name") : "program";
  program.threads = prescription.whole("threads", 1, 1, 1 << 16);
  if (target.contains("pace")) program.pace = prescription.real("pace", 0, 0.9);
  if (program.pace > 0) program.run_time_s = prescription.real("run_time_s", 1e-3, 1e6);
  if (const json planned = root.value("planned", json()); planned.is_object() && planned.contains("run_time_s"))
    program.planned_s = Fields{planned, shown + ": planned"}.real("run_time_s", 0, 1e12);
  const json& shares = file.at("shares");
  double sum = 0;
  if (!shares.is_array() || shares.size() != static_cast<std::size_t>(program.threads))
    file.refuse("shares", shares, std::to_string(program.threads) + " numbers, one per thread");
  for (const json& share : shares) {
    if (!share.is_number() || !(share.get<double>() >= 0 && share.get<double>() <= 1))
      file.refuse("shares", share, "a number from 0 to 1");
    program.shares.push_back(share.get<double>());
    sum += program.shares.back();
  }
  if (std::fabs(sum - 1) > 1e-6) file.refuse("shares", shares, "numbers whose sum is 1");
  const json& variants = file.at("variants");
  if (!variants.is_array() || variants.empty() || variants.size() > 10'000)
    file.refuse("variants", variants, "1 to 10000 variants");
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const std::string where = shown + ": variants[" + std::to_string(i) + "]";
    if (!variants[i].is_object()) throw Failure(where + ": not an object");
    const Fields f{variants[i], where};
    KernelVariant part;
    part.name = f.text("name");
    try {
      part.entry = &workloads::kernel(f.text("kernel"));
    } catch (const UsageError& error) {
      throw Failure(where + ".kernel: " + error.what() + "; this build lacks that load kernel");
    }
    part.shape.volume_bytes = f.whole("volume_bytes", 0, std::uint64_t{1} << 50);
    part.shape.stride = f.whole("stride", 1, 1, 1 << 20);
    part.shape.threads = f.whole("threads", 1, 1, 1 << 16);
    if (part.shape.threads != program.threads)
      f.refuse("threads", variants[i].value("threads", json(1)),
               std::to_string(program.threads) + ", the program's threads");
    part.window = f.has("window") ? f.whole("window", 1, std::uint64_t{1} << 50) : 1;
    part.calls = f.whole("calls", 1, kMaxCalls);
    part.phase = f.real("phase", 0, 1);
    const std::string served_by = variants[i].contains("served_by") ? f.text("served_by") : "memory";
    part.from_memory = served_by == "memory";
    part.from_cache = served_by == "L2" || served_by == "L3";
    for (const CountColumn& c : workloads::kCountColumns)
      if (f.object.contains(c.name)) part.planned.*c.value = f.real(c.name, 0, 1e18);
    program.parts.push_back(part);
  }
  return program;
}

Order::Order(const std::vector<KernelVariant>& parts) : parts_(parts) {
  for (std::size_t k = 0; k < parts.size(); ++k)
    heap_.push_back({(0.0 + parts[k].phase) / static_cast<double>(parts[k].calls), k, 0});
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
}

std::size_t Order::next() {
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  Due due = heap_.back();
  heap_.pop_back();
  const KernelVariant& part = parts_[due.part];
  if (++due.call < part.calls) {
    due.time = (static_cast<double>(due.call) + part.phase) / static_cast<double>(part.calls);
    heap_.push_back(due);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  return due.part;
}

}  // namespace mm::load
