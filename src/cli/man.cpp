// flashgpt man: the manual page, in roff, written from the option tables; only what no table says is told here.
#include <cctype>
#include <cstdio>
#include <sstream>

#include "cli/command.h"
#include "cli/help.h"
#include "flashgpt/error.h"

namespace flashgpt::cli {
namespace {

// Text that roff takes as it is: a backslash escaped, a minus that can be copied, no line that looks like a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n'))
      out += std::string("\\&") + c;
    else
      out += c;
  }
  return out;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string term(const std::string& name, const std::string& text) { return ".TP\n.B " + roff(name) + "\n" + roff(text) + "\n"; }

std::string option(const OptionText& o) {
  std::string out = ".TP\n";
  if (o.value.empty())
    out += ".B " + roff(o.flag) + ", " + roff("--no-" + o.flag.substr(2)) + "\n";
  else
    out += "\\fB" + roff(o.flag) + "\\fR" + (o.value_may_be_left_out ? "[=" : " ") + "\\fI" + roff(o.value) + "\\fR" +
           (o.value_may_be_left_out ? "]" : "") + "\n";
  out += roff(o.help) + (o.help.ends_with(".") ? "\n" : ".\n");
  if (!o.by_default.empty()) out += "Default: " + roff(o.by_default) + ".\n";
  if (o.key.find('.') != std::string::npos) out += "In a file: " + roff(o.key) + ".\n";
  return out;
}

// Paragraphs of a usage text; the first is its first line.
std::string usage(const std::string& text) {
  const std::size_t end = text.find('\n');
  std::string line = text.substr(0, end), rest = end == std::string::npos ? "" : text.substr(end);
  if (line.starts_with("usage: ")) line = line.substr(7);
  std::string out = ".B " + roff(line) + "\n";
  std::istringstream lines(rest);
  bool gap = true;
  for (std::string l; std::getline(lines, l);) {
    if (l.empty())
      gap = true;
    else
      out += std::string(gap ? ".PP\n" : "") + roff(l) + "\n", gap = false;
  }
  return out;
}

std::string page() {
  std::string out =
      std::string(".TH FLASHGPT 1 \"\" \"flashgpt ") + FLASHGPT_VERSION +
      "\" \"User Commands\"\n.SH NAME\nflashgpt \\- trains and runs long\\-context GPTs with exact, tiled attention\n"
      ".SH SYNOPSIS\n.B flashgpt\n.I COMMAND\n[arguments]\n.SH DESCRIPTION\nResults go to standard output, messages to standard error.\nA flag is written "
      "\\fB\\-\\-flag\\fR \\fIVALUE\\fR or \\fB\\-\\-flag=\\fIVALUE\\fR; what follows \\fB\\-\\-\\fR is no flag.\n.SH COMMANDS\n";
  for (const Command& c : commands()) out += term(c.name, c.summary);
  for (const CommandHelp& h : help_of_commands()) {
    out += ".SH " + roff(upper(h.command + (h.action.empty() ? "" : " " + h.action))) + "\n" + usage(h.usage);
    std::string section;
    const bool repeats = h.command != "train";
    bool told = false;
    for (const OptionText& o : h.options) {
      if (repeats && o.key.find('.') != std::string::npos) {
        if (!told) out += ".PP\nThe options of a training, as told at TRAIN.\n";
        told = true;
        continue;
      }
      if (o.section != section) out += ".SS " + roff(o.section) + "\n";
      section = o.section;
      out += option(o);
    }
  }
  out +=
      ".SH CONFIGURATION\nA YAML file (\\fB\\-\\-config\\fR) says what differs from the defaults, as sections with keys; \\fIsection.key\\fR=\\fIvalue\\fR on the command\n"
      "line wins over the file, and flags are the same keys.\n.SH FILES\nA run leaves, in its folder:\n";
  out += term("config.yaml", "Every setting, automatic choices included.") +
         term("train.jsonl", "One line of JSON a step, and one a validation.") +
         term("events.out.tfevents.*", "The same for TensorBoard, one file a sitting.") +
         term("checkpoints/step_00000500, checkpoints/latest", "Hugging Face folders with what a resume needs.") +
         term("final", "The model, a Hugging Face folder.") + term("report.html", "Written by flashgpt report.");
  out += ".SH EXIT STATUS\n" + term("0", "Done; or stopped by a first SIGTERM, SIGINT or SIGUSR1, and saved.") + term("1", "Failure.") +
         term("2", "Usage.") + term("3", "Bad configuration or data.") + term("4", "Device or memory.");
  out += ".SH ENVIRONMENT\n" + term("FLASHGPT_ISA", "portable, avx2 or avx512: lowers the instruction set.") +
         term("FLASHGPT_CACHE", "Folder of compiled GPU kernels; else XDG_CACHE_HOME/flashgpt or ~/.cache/flashgpt.") +
         term("FLASHGPT_CUDA_LIB", "Folder of libnvrtc.so and libcuda.so.") +
         term("OPENBLAS_CORETYPE", "Kernels of the BLAS; chosen for the processor when not set.") + term("NO_COLOR", "No colours.");
  return out;
}

}  // namespace

int man(const std::vector<std::string>& args) {
  OptionTable table;
  const Arguments arguments = table.split(args);
  if (show_help(arguments, "usage: flashgpt man\n\nPrints the manual page. To read it: flashgpt man | man -l -", table)) return 0;
  limit_positionals(arguments, "man", 0);
  std::fputs(page().c_str(), stdout);
  return 0;
}

}  // namespace flashgpt::cli
