#pragma once
#include <string>
#include <utility>
#include <vector>

#include "../syntax.hpp"

namespace mm::place::job {

inline constexpr int kTimedOut = 124, kNotExecutable = 126, kNotFound = 127;  // as timeout(1), env(1) and shells

/// Exit status with which an exec of this would fail, and why; 0 where it would not.
std::pair<int, std::string> unfit(const std::string& program);

int complain(const std::pair<int, std::string>& unfit_command);

[[noreturn]] void become(const std::vector<std::string>& command);

/// Launchers whose ranks a daemon starts: no descendants of this process, so nothing is seen of them.
bool starts_elsewhere(const std::string& program);

/// Where several MPIs are installed, `mpirun` and `mpiexec` are one's, not always the one asked for; Debian has each of
/// them beside it under a name of its own. Only beside it: another folder's is another installation.
std::string of_its_kind(const std::string& program, const std::string& form);

/// How launchers start so many ranks without binding them.
std::vector<std::string> launcher_words(const std::string& form, int ranks);

/// A form's words as they are run. Its files are memory that only this process and its children have: nothing is left
/// behind, however it ends.
std::vector<std::string> words_of(const Form& form);

}  // namespace mm::place::job
