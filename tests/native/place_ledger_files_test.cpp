/// The ledger's files: their text there and back, their bounds, and the order of tickets.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "place/ledger/folder.hpp"
#include "place/ledger/format.hpp"
#include "place/ledger/queue.hpp"
#include "sys/descriptor.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace mm::place;
using namespace mm::place::ledger;
namespace fs = std::filesystem;
using mm::Fd, mm::json;

class LedgerFiles : public testing::Test {
 protected:
  void SetUp() override { folder_ = open_folder(above_.path("claims"), true); }
  std::string text(const std::string& name) const {
    std::ifstream in(folder_.file(name));
    return {std::istreambuf_iterator<char>(in), {}};
  }

  const TemporaryFolder above_;
  Folder folder_;
};

Reservation reservation() {
  Reservation r;
  r.pid = 17;
  r.since_s = 1234.5;
  r.command = "./a.out \"x\"";
  r.policy = "pack";
  r.job = "slurm 5";
  r.exclusive = true;
  r.layout.parts = {{0, 1, 2, 5}, {3}};
  return r;
}

TEST(ReservationText, SurvivesTheWayThereAndBack) {
  std::string boot;
  const Reservation r = reservation(), read = parse_reservation(reservation_line(r), boot);
  EXPECT_EQ(boot, boot_id());
  EXPECT_EQ(boot.size(), 36U);
  EXPECT_EQ(read.pid, r.pid);
  EXPECT_EQ(read.since_s, r.since_s);
  EXPECT_EQ(read.command, r.command);
  EXPECT_EQ(read.policy, r.policy);
  EXPECT_EQ(read.job, r.job);
  EXPECT_EQ(read.exclusive, r.exclusive);
  EXPECT_EQ(read.layout.parts, r.layout.parts);
  EXPECT_EQ(read.joined, 1);
  EXPECT_EQ(read.cgroup, "");
}

TEST(ReservationText, HasWhatCameLaterInLinesOfItsOwn) {
  std::string boot;
  const std::string first = reservation_line(reservation());
  EXPECT_EQ(first.find('\n'), first.size() - 1);
  const Reservation read = parse_reservation(
      first + "\n{\"joined\":3}\n{\"torn\": \n\n{\"cgroup\":\"/sys/fs/cgroup/meshmark-1\"}\n{\"joined\":4}\n", boot);
  EXPECT_EQ(read.joined, 3);
  EXPECT_EQ(read.cgroup, "/sys/fs/cgroup/meshmark-1");
  EXPECT_EQ(read.pid, 17) << "later lines change nothing else";
}

TEST(ReservationText, HasBoundsOnWhatStrangersWrite) {
  std::string boot;
  Reservation r = reservation();
  r.command = std::string(5000, 'c');
  EXPECT_EQ(parse_reservation(reservation_line(r), boot).command, std::string(4096, 'c')) << "a long command is cut";
  r.command = "\xff of no encoding";
  EXPECT_NO_THROW(parse_reservation(reservation_line(r), boot));
  r = reservation();
  r.policy = std::string(4097, 'p');
  EXPECT_THROW(parse_reservation(reservation_line(r), boot), mm::Failure);
  r.policy.pop_back();
  EXPECT_EQ(parse_reservation(reservation_line(r), boot).policy.size(), 4096U);
  json many = json::parse(reservation_line(reservation()));
  many["parts"] = std::vector<std::string>(65536, "1");
  EXPECT_EQ(parse_reservation(many.dump(), boot).layout.parts.size(), 65536U);
  many["parts"].push_back("1");
  EXPECT_THROW(parse_reservation(many.dump(), boot), mm::Failure);
  const std::string line = reservation_line(reservation());
  EXPECT_NO_THROW(parse_reservation(line + std::string((1 << 20) - line.size(), '\n'), boot));
  EXPECT_THROW(parse_reservation(line + std::string((1 << 20) + 1 - line.size(), '\n'), boot), mm::Failure);
  EXPECT_THROW(parse_reservation("", boot), mm::Failure);
  EXPECT_THROW(parse_reservation("\n\n", boot), mm::Failure);
  EXPECT_THROW(parse_reservation("nonsense\n" + line, boot), mm::Failure);
  for (const char* const key : {"pid", "since_s", "exclusive", "parts"}) {
    json lacking = json::parse(line);
    lacking.erase(key);
    EXPECT_THROW(parse_reservation(lacking.dump(), boot), mm::Failure) << key;
  }
}

TEST_F(LedgerFiles, AFileIsWholeLockedAndReadableByAllFromItsFirstMoment) {
  const mode_t before = umask(077);
  const Fd held = publish(folder_, "claim-x", "text\n");
  umask(before);
  struct stat status{};
  ASSERT_EQ(stat(folder_.file("claim-x").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0644U);
  EXPECT_EQ(text("claim-x"), "text\n");
  auto entry = open_entry(folder_, "claim-x");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->status.st_ino, status.st_ino);
  EXPECT_EQ(read_bounded(entry->fd.get()), "text\n");
  EXPECT_FALSE(dead(*entry));
  EXPECT_EQ(holder_of(held.get()).rfind("process " + std::to_string(getpid()) + " (", 0), 0U) << holder_of(held.get());
  append(held.get(), {{"joined", 1}}, "claim-x");
  EXPECT_EQ(text("claim-x"), "text\n\n{\"joined\":1}\n");
  EXPECT_THROW(publish(folder_, "claim-x", "another"), mm::Failure);
}

TEST_F(LedgerFiles, AFileWithoutAHolderIsDeadAndOneThatIsNotThereIsNone) {
  { const Fd held = publish(folder_, "claim-x", "text\n"); }
  const auto entry = open_entry(folder_, "claim-x");
  ASSERT_TRUE(entry);
  EXPECT_TRUE(dead(*entry));
  EXPECT_FALSE(open_entry(folder_, "claim-y"));
  const Fd unlocked(open(folder_.file("claim-z").c_str(), O_RDWR | O_CREAT, 0644));
  EXPECT_EQ(holder_of(unlocked.get()), "a process that is not visible here");
}

TEST_F(LedgerFiles, ALongFileIsReadUpToItsBound) {
  const Fd held = publish(folder_, "claim-x", std::string(20000, 'a') + std::string(3 << 20, 'b'));
  const std::string read = read_bounded(held.get());
  EXPECT_EQ(read.find('b'), 20000U);
  EXPECT_GT(read.size(), std::size_t{1} << 20);
  EXPECT_LT(read.size(), std::size_t{2} << 20);
}

TEST_F(LedgerFiles, AFolderIsMadeForAllOrNotAtAll) {
  EXPECT_FALSE(open_folder(above_.path("none"), false));
  EXPECT_FALSE(fs::exists(above_.path("none")));
  struct stat status{};
  ASSERT_EQ(stat(folder_.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 01777U) << "whatever the umask";
  above_.write("file", "x");
  EXPECT_THROW(open_folder(above_.path("file"), true), mm::Failure);
  EXPECT_THROW(open_folder(above_.path("file"), false), mm::Failure);
  EXPECT_THROW(open_folder(above_.path("none/deeper"), true), mm::Failure);
}

TEST_F(LedgerFiles, AreListedInOrderByTheirPrefix) {
  for (const char* const name : {"claim-b", "wait-2", "claim-a", "claims", "wait-1"})
    std::ofstream(folder_.file(name)) << "x";
  EXPECT_EQ(names_in(folder_, "claim-"), (std::vector<std::string>{"claim-a", "claim-b"}));
  EXPECT_EQ(names_in(folder_, "wait-"), (std::vector<std::string>{"wait-1", "wait-2"}));
  std::set<std::string> random;
  for (int i = 0; i < 20; ++i) random.insert(random_name());
  EXPECT_EQ(random.size(), 20U);
  EXPECT_EQ(random.begin()->size(), 16U);
}

TEST_F(LedgerFiles, TheMutexIsAFileOfItsOwnThatIsMadeAnewWhereItWasRemoved) {
  { const Mutex mutex(folder_); }
  struct stat status{};
  ASSERT_EQ(stat(folder_.file("mutex").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0666U);
  const int other = open(folder_.file("mutex").c_str(), O_RDONLY);
  {
    const Mutex mutex(folder_);
    EXPECT_NE(flock(other, LOCK_EX | LOCK_NB), 0);
  }
  EXPECT_EQ(flock(other, LOCK_EX | LOCK_NB), 0);
  fs::remove(folder_.file("mutex"));
  { const Mutex mutex(folder_); }  // at once: the old one has no name any more
  close(other);
  fs::remove(folder_.file("mutex"));
  fs::create_directory(folder_.file("mutex"));
  EXPECT_THROW(Mutex{folder_}, mm::Failure);
  // A stranger's link or pipe is neither followed nor waited for.
  fs::remove(folder_.file("mutex"));
  above_.write("elsewhere", "x");
  fs::create_symlink(above_.path("elsewhere"), folder_.file("mutex"));
  EXPECT_THROW(Mutex{folder_}, mm::Failure);
  fs::remove(folder_.file("mutex"));
  ASSERT_EQ(mkfifo(folder_.file("mutex").c_str(), 0666), 0);
  EXPECT_THROW(Mutex{folder_}, mm::Failure);
}

TEST_F(LedgerFiles, TicketsAreServedInTheOrderInWhichTheyWereDrawn) {
  EXPECT_TRUE(first_in_line(folder_, ""));
  Ticket first(folder_), second(folder_);
  Reservation as = reservation();
  first.draw(as);
  as.command = std::string(5000, 'c');
  second.draw(as);
  EXPECT_LT(first.name, second.name);
  EXPECT_EQ(first.name.rfind("wait-", 0), 0U);
  EXPECT_FALSE(first_in_line(folder_, "")) << "who has no ticket comes after those who have";
  EXPECT_TRUE(first_in_line(folder_, first.name));
  EXPECT_FALSE(first_in_line(folder_, second.name));
  const json waiting = waiting_in(folder_);
  ASSERT_EQ(waiting.size(), 2U);
  EXPECT_EQ(waiting[0].at("pid"), getpid());
  EXPECT_EQ(waiting[0].at("command"), reservation().command);
  EXPECT_EQ(waiting[1].at("command").get<std::string>().size(), 4096U);
  EXPECT_EQ(waiting[0].at("user"), user_name(std::to_string(geteuid())));
  EXPECT_NEAR(waiting[0].at("since_s").get<double>(), now_s(), 60);
  EXPECT_NEAR(now_s(), static_cast<double>(time(nullptr)), 2);
  first.fd = Fd();  // its owner died
  EXPECT_EQ(waiting_in(folder_).size(), 1U);
  EXPECT_TRUE(first_in_line(folder_, second.name));
  EXPECT_EQ(names_in(folder_, "wait-"), std::vector<std::string>{second.name});
}

TEST_F(LedgerFiles, TicketsOfTheDeadAreRemovedAndThoseOfTheLivingStay) {
  Ticket living(folder_), dying(folder_);
  living.draw(reservation());
  dying.draw(reservation());
  dying.fd = Fd();
  remove_dead_tickets(folder_);
  EXPECT_EQ(names_in(folder_, "wait-"), std::vector<std::string>{living.name});
  const std::string name = [&] {
    Ticket gone(folder_);
    gone.draw(reservation());
    return gone.name;
  }();
  EXPECT_FALSE(fs::exists(folder_.file(name))) << "a ticket goes with its object";
  const Fd stranger = publish(folder_, "wait-0", "no ticket\n");
  EXPECT_EQ(waiting_in(folder_).size(), 1U);
  EXPECT_TRUE(waiting_in(Folder{"", Fd()}).empty());
}

TEST_F(LedgerFiles, WhoWatchesWakesWhenATicketGoesAndElseAfterTheTime) {
  Watch watch(folder_);
  const double begun = mm::wall_s();
  watch.wait(0.01);
  watch.wait(0);
  EXPECT_LT(mm::wall_s() - begun, 10);
  EXPECT_EQ(user_name("4294967294"), "4294967294") << "a user without a name";
  EXPECT_EQ(user_name("0"), "root");
}

}  // namespace
