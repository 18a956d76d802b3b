#include "node/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>

#include "base/error.hpp"
#include "base/options/fields.hpp"

namespace mm::node {
namespace {

constexpr std::size_t kMaxSteps = 1000, kMaxPatterns = 1000, kMaxLimits = 10'000;

/// Returns a list of objects or texts; empty if it is missing.
json list_of(const Fields& f, const std::string& key, std::size_t most) {
  if (!f.has(key)) return json::array();
  const json& value = f.at(key);
  if (!value.is_array() || value.size() > most) f.refuse(key, value, "a list of at most " + std::to_string(most));
  return value;
}

std::string text_of(const Fields& f, const std::string& key, const json& value) {
  if (!value.is_string() || value.get_ref<const std::string&>().find('\0') != std::string::npos)
    f.refuse(key, value, "a text");
  return value.get<std::string>();
}

bool is_below(const std::string& path) {
  const std::filesystem::path relative_path(path);
  return !path.empty() && relative_path.is_relative() &&
         std::none_of(relative_path.begin(), relative_path.end(), [](const auto& part) { return part == ".."; });
}

std::vector<std::pair<std::string, std::string>> texts_of(const Fields& f, const std::string& key) {
  std::vector<std::pair<std::string, std::string>> texts;
  if (!f.has(key)) return texts;
  const json& value = f.at(key);
  if (!value.is_object()) f.refuse(key, value, "an object of texts");
  for (const auto& [name, text] : value.items()) texts.emplace_back(name, text_of(f, key, text));
  return texts;
}

UserProgram read_program(const json& raw, const std::string& where) {
  if (!raw.is_object()) throw Failure(where + ": not an object");
  const Fields f{raw, where};
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 60;
  UserProgram program;
  program.warmup = f.whole("warmup", 0, 0, 100);
  program.runs = f.whole("runs", 1, 1, 100);
  program.environment = texts_of(f, "environment");
  program.files = texts_of(f, "files");
  program.results = f.text("results", "");
  for (const json& word : list_of(f, "verify", 1000)) program.verify.push_back(text_of(f, "verify", word));
  if (!program.verify.empty()) {
    program.verify_timeout_s = f.real("verify_timeout_s", 0.001, 86'400);
    program.verify_output = f.whole("verify_output", 1, kMaxBytes);
  }
  program.failures = static_cast<int>(f.whole("failures", 1, 100));
  program.timeout_s = f.real("timeout_s", 0.001, 86'400);
  program.memory = f.has("memory") ? f.whole("memory", 1, kMaxBytes) : 0;
  program.output = f.whole("output", 1, kMaxBytes);
  program.tail_bytes = f.whole("kept", 1, std::uint64_t{1} << 20);
  for (const auto& [name, text] : program.files)
    if (!is_below(name)) f.refuse("files", name, "paths below the folder of a run");
  if (!program.results.empty() && !is_below(program.results))
    f.refuse("results", program.results, "a path below the folder of a run");
  return program;
}

PlanStep read_step(const json& raw, const std::string& where) {
  if (!raw.is_object()) throw Failure(where + ": not an object");
  const Fields f{raw, where};
  PlanStep step{f.text("id"), {}, f.real("limit_s", 0.001, 86'400)};
  for (const json& argument : list_of(f, "argv", 1000)) step.argv.push_back(text_of(f, "argv", argument));
  if (step.argv.empty()) f.refuse("argv", json(), "an instrument and its options, or a program");
  if (f.has("program")) step.program = read_program(f.at("program"), where + ".program");
  return step;
}

Limit read_limit(const json& raw, const std::string& where) {
  if (!raw.is_object()) throw Failure(where + ": not an object");
  const Fields f{raw, where};
  constexpr double kMax = std::numeric_limits<double>::max();
  Limit limit{f.text("instrument"), f.text("metric"), f.at("conditions"),
              f.has("low") ? f.real("low", -kMax, kMax) : -kMax, f.has("high") ? f.real("high", -kMax, kMax) : kMax};
  if (!limit.conditions.is_object()) f.refuse("conditions", limit.conditions, "an object");
  return limit;
}

}  // namespace

Plan read_plan(const std::string& path, const std::string& hash) {
  const std::string shown = shown_path(path);
  const json raw = read_format(path, "meshmark node plan");
  const Fields f{raw, shown};
  Plan plan;
  plan.id = f.text("id");
  plan.kind = f.text("kind");
  plan.alone = f.truth("alone");
  plan.limit_s = f.real("limit_s", 0.001, 86'400);
  for (const json& file : list_of(f, "files", kMaxPatterns)) plan.files.push_back(text_of(f, "files", file));
  const json steps = list_of(f, "steps", kMaxSteps);
  for (std::size_t i = 0; i < steps.size(); ++i)
    plan.steps.push_back(read_step(steps[i], shown + ": steps[" + std::to_string(i) + "]"));
  if (!f.has("limits")) return plan;
  const json& classes = f.at("limits");
  if (!classes.is_object()) f.refuse("limits", classes, "an object of lists, by the hash of the hardware");
  const Fields limits{classes, shown + ": limits"};
  const json own_limits = list_of(limits, hash, kMaxLimits);
  for (std::size_t i = 0; i < own_limits.size(); ++i)
    plan.limits.push_back(read_limit(own_limits[i], shown + ": limits." + hash + "[" + std::to_string(i) + "]"));
  return plan;
}

}  // namespace mm::node
