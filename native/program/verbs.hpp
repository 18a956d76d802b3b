#pragma once
/// A program of several verbs, as git has them.
#include <span>
#include <string>

namespace mm {

struct Verb {
  const char* name;
  const char* help;
  int (*call)(int argc, char** argv);  ///< argv[0] is the verb; the exit status
  const char* command = nullptr;       ///< the command of meshmark that calls it, for hints; null: the same name
};

struct VerbProgram {
  std::string name;     ///< on the usage line: "meshmark-load"
  std::string user;     ///< whose options hints name: "meshmark" where its commands call the verbs
  std::string example;  ///< arguments
  std::span<const Verb> verbs;
};

/// Calls the verb of argv[1], or prints the usage. Returns the exit status.
int run_verb(const VerbProgram& program, int argc, char** argv);

}  // namespace mm
