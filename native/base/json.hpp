#pragma once
/// JSON with the keys in the order they were written, so that lines read well.
#include <nlohmann/json.hpp>

namespace mm {
using json = nlohmann::ordered_json;
}
