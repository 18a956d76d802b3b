#pragma once
/// The instruments of native/apps, which are built into programs of their own if somebody asks for them.
#include <array>
#include <string_view>

namespace mm {

inline constexpr std::array<std::string_view, 11> kApplications{
    "anatomy", "fft", "gyro", "lj", "mod2d", "mod2e", "npb", "pop", "pstswm", "swim", "swim_threads"};

}  // namespace mm
