/// The start of child processes: none outlives its parent unnoticed, and programs inherit no descriptor by accident.
#include "base/resources/child.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

namespace mm {
namespace {

TEST(ChildProcess, HasAStatusThatTheParentReceives) {
  const pid_t child = start_child();
  if (child == 0) ::_exit(7);
  const int status = wait_for_child(child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(ChildProcess, EndsWithTheProcessThatStartedIt) {
  Pipe life;  // the reader sees its end when no process holds the writer
  const pid_t parent = start_child();
  if (parent == 0) {
    Pipe ready;
    if (start_child() == 0) {
      if (::write(ready.writer.get(), "", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char byte = 0;
    ::_exit(::read(ready.reader.get(), &byte, 1) == 1 ? 0 : 1);
  }
  life.writer.close();
  char byte = 0;
  EXPECT_EQ(::read(life.reader.get(), &byte, 1), 0);
  EXPECT_EQ(wait_for_child(parent), 0);
}

TEST(ChildProcess, OfAParentThatHasEndedDoesNotContinue) {
  const pid_t child = start_child(SIGKILL, 1);
  if (child == 0) ::_exit(0);
  EXPECT_EQ(WEXITSTATUS(wait_for_child(child)), 126);
}

TEST(Pipe, ClosesWhenAProgramIsExecuted) {
  const Pipe pipe;
  for (const int end : {pipe.reader.get(), pipe.writer.get()}) EXPECT_EQ(::fcntl(end, F_GETFD), FD_CLOEXEC);
}

TEST(Fd, ClosesTheDescriptorThatItHoldsOnce) {
  Fd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = first.get();
  const Fd second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(second.get(), number);
  first.close();  // NOLINT(clang-analyzer-cplusplus.Move): closing it again must not close the descriptor of `second`
  EXPECT_NE(::fcntl(number, F_GETFD), -1);
}

TEST(ArgumentVector, EndsWithANullPointer) {
  const std::vector<std::string> words{"true", ""};
  const std::vector<char*> arguments = argument_vector(words);
  ASSERT_EQ(arguments.size(), 3U);
  EXPECT_STREQ(arguments[0], "true");
  EXPECT_STREQ(arguments[1], "");
  EXPECT_EQ(arguments[2], nullptr);
}

}  // namespace
}  // namespace mm
