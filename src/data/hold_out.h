// Which text is held out for validation, and the second pass over the documents, with training text and held-out text told apart.
//
// Documents are held out whole, by their hash. When they are too few for that to come near the wanted part, the end of each is held out
// instead: cut before the best heading near the place (with chapters), else after a newline, else between two characters.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/survey.h"

namespace flashgpt {

struct HeldOut {
  bool ends = false;                // of every document; else whole ones
  std::vector<std::int64_t> train;  // of each document of the survey that has text, in order: bytes before what is held out, about
  std::int64_t train_bytes = 0;     // all of them
};
// An Error when there is too little text.
HeldOut hold_out(const Survey& survey, double fraction);

struct Visitor {
  std::function<void(const SurveyedFile& file, std::size_t document)> begin;  // may be empty
  std::function<void(std::string_view text, bool held_out)> text;
  std::function<void(bool held_out)> end;  // of the part of a document on this side, which has text
};
// Reads the documents again. An Error when a file is not what it was in the survey.
void walk(const Survey& survey, const HeldOut& held_out, const SourceOptions& options, bool chapters, const Visitor& visitor);

// A number from 0 to 1 made of a hash.
double fraction_of(std::uint64_t hash);

}  // namespace flashgpt
