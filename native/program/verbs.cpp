#include "program/verbs.hpp"

#include <cstdio>
#include <cstring>
#include <exception>

#include "base/error.hpp"
#include "base/text.hpp"
#include "program/entry.hpp"

namespace mm {
namespace {

constexpr const char* kErrorsOf = "meshmark";  // prefix of error lines: users run this command, not the native programs

int usage(const VerbProgram& program, std::FILE* to) {
  const char* const name = program.name.c_str();
  std::fprintf(to, "Usage: %s VERB [OPTIONS]\n\n  %s\n\n", name, program.summary.c_str());
  std::fprintf(to, "  example: %s %s\n\nVerbs:\n", name, program.example.c_str());
  for (const Verb& v : program.verbs) std::fprintf(to, "  %-10s %s\n", v.name, v.help);
  return to == stdout ? 0 : 2;
}

int call(const VerbProgram& program, const Verb& verb, int argc, char** argv) {
  try {
    return verb.call(argc, argv);
  } catch (const std::exception& error) {
    Ending ending = ending_of(error);
    if (ending.status == 2)
      ending.hint = program.user + " " + (verb.command != nullptr ? verb.command : verb.name) + " --help";
    return print_ending(kErrorsOf, ending);
  }
}

int answer(const VerbProgram& program, int argc, char** argv) {
  if (argc < 2) return usage(program, stderr);
  if (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0) return usage(program, stdout);
  std::string names;
  for (const Verb& v : program.verbs) {
    if (std::strcmp(argv[1], v.name) == 0) return call(program, v, argc - 1, argv + 1);
    names += (names.empty() ? "" : ", ") + std::string(v.name);
  }
  return print_ending(kErrorsOf, ending_of(UsageError("verb", "found " + quote(argv[1]), names)));
}

}  // namespace

int run_verb(const VerbProgram& program, int argc, char** argv) {
  return enter(kErrorsOf, [&] { return answer(program, argc, argv); });
}

}  // namespace mm
