#include "base/options/fields.hpp"

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/options/options.hpp"

namespace mm {

void Fields::refuse(const std::string& key, const json& value, const std::string& allowed) const {
  throw Failure(where + "." + key + ": found " + shown_json(value) + "; allowed: " + allowed);
}

bool Fields::has(const std::string& key) const { return object.contains(key) && !object[key].is_null(); }

const json& Fields::at(const std::string& key) const {
  const auto entry = object.find(key);
  if (entry == object.end()) throw Failure(where + ": has no " + key);
  return *entry;
}

std::string Fields::text(const std::string& key) const {
  const json& value = at(key);
  // System calls would cut a text at a null byte.
  if (!value.is_string() || value.get_ref<const std::string&>().find('\0') != std::string::npos)
    refuse(key, value, "a text");
  return value.get<std::string>();
}

double Fields::real(const std::string& key, double low, double high) const {
  const json& value = at(key);
  if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high))
    refuse(key, value, "a number from " + json(low).dump() + " to " + json(high).dump());
  return value.get<double>();
}

std::uint64_t Fields::whole(const std::string& key, std::uint64_t low, std::uint64_t high) const {
  const json& value = at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < low || value.get<std::uint64_t>() > high)
    refuse(key, value, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  return value.get<std::uint64_t>();
}

std::string Fields::text(const std::string& key, const std::string& default_value) const {
  return has(key) ? text(key) : default_value;
}

double Fields::real(const std::string& key, double default_value, double low, double high) const {
  return has(key) ? real(key, low, high) : default_value;
}

int Fields::whole(const std::string& key, int default_value, int low, int high) const {
  if (!has(key)) return default_value;
  const json& value = object[key];
  if (!value.is_number_integer() || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high)
    refuse(key, value, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  return value.get<int>();
}

bool Fields::truth(const std::string& key) const {
  if (!has(key)) return false;
  if (!object[key].is_boolean()) refuse(key, object[key], "true or false");
  return object[key].get<bool>();
}

std::vector<int> Fields::cpus(const std::string& key) const {
  const std::string list = text(key, "");
  try {
    return list.empty() ? std::vector<int>{} : parse_cpu_list(key, list);
  } catch (const UsageError&) {
    refuse(key, object[key], "a list such as 0-3,8");
  }
}

json read_format(const std::string& path, const std::string& format) {
  const std::string file = shown_path(path);
  const FileContent input = read_input(path);
  if (!input.wrong.empty()) throw Failure(file + ": " + input.wrong + "; allowed: " + input.allowed);
  json raw = parse_json(input.text);
  if (!raw.is_object()) throw Failure(file + ": not a JSON object");
  const Fields f{raw, file};
  if (f.text("format", "") != format) f.refuse("format", raw.value("format", json()), format);
  if (f.whole("version", 0, 0, 1 << 20) != 1) f.refuse("version", raw.value("version", json()), "1");
  return raw;
}

}  // namespace mm
