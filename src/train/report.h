// One HTML page about a run, made of what the run left: train.jsonl and config.yaml. Everything is inside the page (styles, charts as SVG);
// nothing is loaded and no script runs, so it can be mailed, archived and opened anywhere.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace flashgpt {

struct ReportSample {
  std::string prompt, text;  // text: without the prompt
};

// A run in progress gives what it has so far; a torn last line and lines that are no JSON are passed over. Error: no train.jsonl, or none
// of its lines is of a step.
std::string html_report(const std::filesystem::path& run, const std::vector<ReportSample>& samples = {});

}  // namespace flashgpt
