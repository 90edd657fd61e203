// Unicode normalization form C: characters decomposed, combining marks put in order, and composed again. Bytes that are no UTF-8 stay.
#pragma once
#include <string>
#include <string_view>

namespace flashgpt {

// The normalized text, or the text itself when it is normal already (nearly always; `buffer` is not touched then).
std::string_view nfc(std::string_view text, std::string& buffer);

}  // namespace flashgpt
