#include "watch/utilisation.hpp"

#include <algorithm>
#include <map>

namespace mm::watch {

Utilisation::Utilisation(Board& board, const Host& host, const std::string& klass,
                         const std::vector<std::string>& moved) {
  const std::string name = klass + ".busy";
  if (board.find(name) != kNone) return;  // the hardware reports it
  for (const std::string& metric : moved)
    if (const std::size_t id = board.find(metric); id != kNone) moved_.push_back(id);
  if (moved_.empty()) return;
  const std::size_t components = board.components(klass);
  sustained_.resize(components);
  peak_ = board.find(klass + ".wire");
  const bool surveyed = read_survey(board, host, klass);
  const json& survey = host.sustained;
  if (peak_ == kNone && survey.is_object() && survey.contains("wire") && survey.at("wire").contains(klass))
    peak_by_firmware_ = survey.at("wire").at(klass).get<double>() / static_cast<double>(components);
  if (peak_ == kNone && !surveyed && peak_by_firmware_ != peak_by_firmware_) {
    board.absent(name, "the peak bandwidth is unknown: no clock is counted, and no survey was made", "meshmark survey");
    return;
  }
  describe(board, host, klass, surveyed);
  share_ = board.add(
      {name, "1", "traffic as a share of the bandwidth",
       surveyed ? "sustained here, by " + survey.value("from", std::string("a survey")) : "theoretical peak"});
}

void Utilisation::describe(const Board& board, const Host& host, const std::string& klass, bool surveyed) {
  denominator_ = json{{"used", surveyed ? "attained" : "wire"}, {"from", json::object()}};
  if (surveyed) {
    json sustained = json::array();
    for (const Mix& mix : sustained_) sustained.push_back(mix.empty() ? json() : json(mix.back().second));
    denominator_["attained"] = sustained;
    denominator_["from"]["attained"] = host.sustained.value("from", std::string("a survey"));
  }
  if (peak_ != kNone) denominator_["from"]["wire"] = board.metrics()[peak_].what;
  if (peak_by_firmware_ == peak_by_firmware_) {
    denominator_["from"]["wire"] = "channels, rate and width of the modules, from the firmware";
    denominator_["wire"] = std::vector<double>(board.components(klass), peak_by_firmware_);
  }
}

/// Reads the sustained bandwidth of each node from a survey and divides it equally among its components. Returns
/// whether the survey has any.
bool Utilisation::read_survey(const Board& board, const Host& host, const std::string& klass) {
  if (!host.sustained.is_object() || !host.sustained.contains(klass)) return false;
  const json& by_node = host.sustained.at(klass);
  std::map<std::int64_t, std::size_t> channels;
  for (std::size_t c = 0; c < sustained_.size(); ++c)
    ++channels[board.component(klass, c).value("node", std::int64_t{-1})];
  bool any = false;
  for (std::size_t c = 0; c < sustained_.size(); ++c) {
    const auto node = board.component(klass, c).value("node", std::int64_t{-1});
    if (node < 0 || static_cast<std::size_t>(node) >= host.nodes.size()) continue;
    const std::string key = std::to_string(host.nodes[static_cast<std::size_t>(node)]);
    if (!by_node.contains(key)) continue;
    for (const json& point : by_node.at(key))
      sustained_[c].emplace_back(point.at(0).get<double>(),
                                 point.at(1).get<double>() / static_cast<double>(channels[node]));
    std::sort(sustained_[c].begin(), sustained_[c].end());
    any = any || !sustained_[c].empty();
  }
  return any;
}

void Utilisation::sample(Board& board) const {
  if (share_ == kNone) return;
  for (std::size_t c = 0; c < sustained_.size(); ++c) {
    double moved = 0;
    for (const std::size_t metric : moved_) moved += board.at(metric, c);
    const double reads = board.at(moved_.front(), c);
    const double peak = peak_ == kNone ? peak_by_firmware_ : board.at(peak_, c);
    const double bandwidth = sustained_[c].empty() ? peak : at_mix(sustained_[c], moved > 0 ? reads / moved : 1);
    board.set(share_, c, bandwidth > 0 ? moved / bandwidth : kUnknown);
  }
}

double Utilisation::at_mix(const Mix& mix, double read_share) {
  for (std::size_t i = 0; i < mix.size(); ++i) {
    if (read_share > mix[i].first) continue;
    if (i == 0) return mix[0].second;
    const double t = (read_share - mix[i - 1].first) / (mix[i].first - mix[i - 1].first);
    return mix[i - 1].second + t * (mix[i].second - mix[i - 1].second);
  }
  return mix.empty() ? kUnknown : mix.back().second;
}

void explain_unknown_use(const Host& host, Board& board) {
  const bool guest = host.cpuinfo.find(" hypervisor") != std::string::npos;
  for (const char* const name : {"memory.busy", "link.busy"}) {
    if (board.find(name) != kNone || board.absence(name) != nullptr) continue;
    const std::string klass = std::string(name).substr(0, std::string(name).find('.'));
    if (klass == "link" && host.nodes.size() < 2) continue;  // a single node has no links
    // A share is absent if its input is absent.
    const json* input_absence = board.absence(klass + ".read");
    if (input_absence == nullptr) input_absence = board.absence(klass + ".out");
    if (input_absence != nullptr) {
      // Copied, because the list of absences grows.
      const std::string reason = input_absence->at("why"), hint = input_absence->value("hint", std::string());
      board.absent(name, reason, hint);
      continue;
    }
    const std::string components = klass == "memory" ? "memory controllers" : "links";
    board.absent(name,
                 guest ? "this is a virtual machine, and the hypervisor exposes no counters of " + components
                       : "meshmark knows none of the counters that the Linux kernel exposes for " + components,
                 guest ? "" : "meshmark doctor");
  }
}

}  // namespace mm::watch
