// The first of the two passes of `data prepare` over its inputs: every document is read once and hashed, so that, before anything is
// written, it is known which are duplicates, how much text there is, and which files are of no use. Memory: about 40 bytes a document.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/files.h"
#include "data/source_documents.h"

namespace flashgpt {

struct SurveyOptions {
  SourceOptions source;
  std::int64_t max_bytes = 0;  // a sample of whole documents from files in the order of a hash of their names; 0: all
  bool keep_duplicates = false;
};

struct SurveyedDocument {
  std::uint64_t hash = 0;  // of what is taken of its text
  std::int64_t bytes = 0;  // taken, from its beginning; 0: left out
};

std::uint64_t document_hash(std::uint64_t checksum, std::int64_t bytes);  // checksum: Checksum64 of the text

struct SurveyedFile {
  InputFile file;
  std::vector<SurveyedDocument> documents;  // as DocumentReader gives them
};

struct Survey {
  std::vector<SurveyedFile> files;  // those with documents to take, in the order of the list
  std::int64_t documents = 0, bytes = 0;
};

// What is left out is added to list.skipped. An Error when a file that the user named is unreadable, binary or damaged.
Survey survey(FileList& list, const SurveyOptions& options);

}  // namespace flashgpt
