#pragma once
#include <string>
#include <utility>
#include <vector>

#include "place/syntax.hpp"

namespace mm::place::job {

inline constexpr int kTimedOut = 124, kNotExecutable = 126, kNotFound = 127;  // as in timeout(1), env(1) and shells

/// Returns the exit status with which an exec of this command would fail, and the reason; 0 if it would succeed.
std::pair<int, std::string> exec_failure(const std::string& program);

int complain(const std::pair<int, std::string>& unfit_command);

[[noreturn]] void become(const std::vector<std::string>& command);

/// Returns whether a daemon starts the ranks of this launcher: they are not descendants of this process, so they cannot
/// be observed.
bool program_uses_daemon(const std::string& program);

/// Returns the program under the name that belongs to the requested MPI library. With several MPI libraries, `mpirun`
/// and `mpiexec` belong to one of them, which may not be the requested one; Debian installs each also under a distinct
/// name. Only the same folder is searched: another folder is another installation.
std::string program_of_library(const std::string& program, const std::string& form);

/// Returns the arguments with which launchers start this many ranks without binding them.
std::vector<std::string> launcher_words(const std::string& form, int ranks);

/// Returns a form's arguments for execution. Its files are kept in memory that only this process and its children can
/// access, so nothing is left behind.
std::vector<std::string> words_of(const Form& form);

}  // namespace mm::place::job
