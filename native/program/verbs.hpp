#pragma once
/// A program with several verbs.
#include <span>
#include <string>

namespace mm {

struct Verb {
  const char* name;
  const char* help;
  int (*call)(int argc, char** argv);  ///< argv[0] is the verb; returns the exit status
  const char* command = nullptr;       ///< the command of meshmark that calls it, for hints; null: same name
};

struct VerbProgram {
  std::string name;     ///< on the usage line: "meshmark-load"
  std::string user;     ///< the command in hints: "meshmark" if its commands call the verbs
  std::string summary;  ///< a sentence
  std::string example;  ///< arguments
  std::span<const Verb> verbs;
};

/// Calls the verb that argv[1] names, or prints the usage. Returns the exit status.
int run_verb(const VerbProgram& program, int argc, char** argv);

}  // namespace mm
