/// C interface through which Python calls native code: the parsers of options (native/base/options/options.hpp), and
/// the identity and topology of machines (native/base/topology/topology.hpp), and the name of the hypervisor.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/options/options.hpp"
#include "base/secrets.hpp"
#include "base/topology/topology.hpp"
#include "base/topology/topology_json.hpp"

namespace {

using mm::json;
using Parser = std::function<json(const std::string& field, const std::string& text, int all)>;

const std::map<std::string, Parser> kParsers = {
    {"size", [](auto& field, auto& text, int) { return mm::parse_size(field, text); }},
    {"sizes", [](auto& field, auto& text, int) { return mm::parse_sizes(field, text); }},
    {"time", [](auto& field, auto& text, int) { return mm::parse_time(field, text); }},
    {"real", [](auto& field, auto& text, int) { return mm::parse_real(field, text); }},
    {"integer", [](auto& field, auto& text, int) { return mm::parse_integer(field, text); }},
    {"integers", [](auto& field, auto& text, int all) { return mm::parse_integers(field, text, all); }},
    {"cpus", [](auto& field, auto& text, int) { return mm::parse_cpu_list(field, text); }},
};

json parsed(const std::string& kind, const std::string& text, int all) {
  try {
    if (text.find('\0') != std::string::npos) return json{{"found", "found " + mm::quote(text)}, {"allowed", ""}};
    return json{{"value", kParsers.at(kind)("", text, all)}};
  } catch (const mm::UsageError& e) {
    return json{{"found", e.what()}, {"allowed", e.allowed}};
  } catch (const std::exception& e) {  // such as a list that exceeds memory
    return json{{"found", e.what()}, {"allowed", ""}};
  }
}

std::size_t write_line(const json& answer, char* out, std::size_t capacity) {
  const std::string text = mm::to_line(answer);
  if (capacity > 0) {
    const std::size_t fits = std::min(text.size(), capacity - 1);
    std::memcpy(out, text.data(), fits);
    out[fits] = '\0';
  }
  return text.size();
}

}  // namespace

/// Writes {"value": VERSION} like `meshmark_parse`. Python refuses a library of another version.
extern "C" __attribute__((visibility("default"))) std::size_t meshmark_version(char* out, std::size_t capacity) {
  return write_line(json{{"value", MM_VERSION}}, out, capacity);
}

/// Writes {"value": …} or {"found": …, "allowed": …} and a terminating null byte to `out`, truncated to `capacity`.
/// `all` is the number that "all" stands for. Returns the full length, without the null byte.
extern "C" __attribute__((visibility("default"))) std::size_t meshmark_parse(const char* kind, const char* text,
                                                                             std::size_t length, int all, char* out,
                                                                             std::size_t capacity) {
  return write_line(parsed(kind, std::string(text, length), all), out, capacity);
}

/// Writes {"name": …, "hash": …, "id": …} of the machine whose /proc and /sys are below `root`, as above.
extern "C" __attribute__((visibility("default"))) std::size_t meshmark_identity(const char* root, char* out,
                                                                                std::size_t capacity) {
  const mm::Identity identity = mm::identity_of_tree(root);
  return write_line(json{{"name", identity.name}, {"hash", identity.hash}, {"id", identity.id()}}, out, capacity);
}

/// Writes {"value": true} if a variable of this name usually holds a secret, as above.
extern "C" __attribute__((visibility("default"))) std::size_t meshmark_is_secret(const char* name, std::size_t length,
                                                                                 char* out, std::size_t capacity) {
  return write_line(json{{"value", mm::is_secret(std::string_view(name, length))}}, out, capacity);
}

/// Writes the result of `mm::topology_json` for the machine whose /proc and /sys are below `root` ("": this host), as
/// above.
extern "C" __attribute__((visibility("default"))) std::size_t meshmark_topology(const char* root, char* out,
                                                                                std::size_t capacity) {
  return write_line(mm::topology_json(mm::described_tree(root)), out, capacity);
}

/// Writes {"value": SIGNATURE}, the twelve characters with which a hypervisor names itself to its guests (CPUID leaf
/// 0x40000000), such as KVMKVMKVM; {"value": null} outside of a guest, and on other processors than x86. As above.
extern "C" __attribute__((visibility("default"))) std::size_t meshmark_hypervisor(char* out, std::size_t capacity) {
  json signature = nullptr;
#if defined(__x86_64__)
  constexpr unsigned kInGuest = 1u << 31, kLeaf = 0x40000000;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kInGuest) != 0) {
    __cpuid(kLeaf, eax, ebx, ecx, edx);
    std::string text;
    for (const unsigned word : {ebx, ecx, edx})
      for (unsigned shift = 0; shift < 32; shift += 8) text += static_cast<char>(word >> shift & 0x7f);
    signature = text.substr(0, text.find('\0'));
  }
#endif
  return write_line(json{{"value", signature}}, out, capacity);
}
