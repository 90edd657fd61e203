// flashgpt completion: scripts for the Tab key, written from the option tables. They hold all they need, so completing starts no program.
// A flag with words offers them, one with a number nothing, any other the names of files; so do arguments that are no flags.
#include <algorithm>
#include <cstdio>

#include "cli/command.h"
#include "cli/help.h"
#include "flashgpt/error.h"

namespace flashgpt::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

// In single quotes, for any of the shells.
std::string quoted(const std::string& text, const std::string& quote_inside) {
  std::string out;
  for (const char c : text) out += c == '\'' ? quote_inside : std::string(1, c);
  return "'" + out + "'";
}

std::vector<std::string> command_names() {
  std::vector<std::string> out;
  for (const Command& c : commands()) out.emplace_back(c.name);
  return out;
}

std::vector<std::string> flags_of(const CommandHelp& h) {
  std::vector<std::string> out{"--config", "--help"};
  for (const OptionText& o : h.options) {
    out.push_back(o.flag);
    if (o.value.empty()) out.push_back("--no-" + o.flag.substr(2));
  }
  return out;
}

// "section.key=": what train and plan take beside flags.
std::vector<std::string> keys_of(const CommandHelp& h) {
  std::vector<std::string> out;
  for (const OptionText& o : h.options)
    if (o.key.find('.') != std::string::npos) out.push_back(o.key + "=");
  return out;
}

// Bash splits words at "=", so --flag=VALUE and key=VALUE come as three. Reserved names cannot clash: every variable is local.
std::string bash() {
  std::string out = R"(# bash completion of flashgpt. For this shell: source <(flashgpt completion bash)
# For good: flashgpt completion bash > ~/.local/share/bash-completion/completions/flashgpt
_flashgpt() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} action=${COMP_WORDS[2]}
  local flags='' keys='' words='' value=''
  COMPREPLY=()
  if [[ $current == '=' ]]; then
    current=''
  elif [[ $before == '=' ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
)";
  out += "  if (( COMP_CWORD == 1 )); then\n    COMPREPLY=($(compgen -W '" + joined(command_names()) +
         " --help --version' -- \"$current\"))\n    return\n  fi\n";
  for (const Command& c : commands())
    if (!c.actions.empty())
      out += cat("  if [[ $command == ", c.name, " ]] && (( COMP_CWORD == 2 )); then\n    COMPREPLY=($(compgen -W '", joined(c.actions),
                 " --help' -- \"$current\"))\n    return\n  fi\n");
  out += "  case \"$command $action\" in\n";
  for (const CommandHelp& h : help_of_commands()) {
    out += cat("    \"", h.command, h.action.empty() ? " \"*" : " " + h.action + "\"", ")\n      flags='", joined(flags_of(h)), "'\n");
    if (const auto keys = keys_of(h); !keys.empty()) out += "      keys='" + joined(keys) + "'\n";
    out += "      case $before in\n        --config) value=file ;;\n";
    for (const OptionText& o : h.options) {
      if (o.value.empty()) continue;
      out += "        " + o.flag + (o.key.find('.') != std::string::npos ? "|" + o.key : "") + ") ";
      out += o.words.empty() ? "value=" + std::string(o.is_text ? "file" : "none") : "value=words words='" + joined(o.words) + "'";
      out += " ;;\n";
    }
    out += "      esac ;;\n";
  }
  out += R"(  esac
  case $value in
    words) COMPREPLY=($(compgen -W "$words" -- "$current")) ; return ;;
    none) compopt +o default ; return ;;
    file) return ;;
  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  elif [[ -n $keys && -n $current ]]; then
    COMPREPLY=($(compgen -W "$keys" -- "$current"))
    [[ ${#COMPREPLY[@]} -gt 0 ]] && compopt -o nospace
  fi
}
complete -o default -F _flashgpt flashgpt
)";
  return out;
}

std::string zsh() {
  // In a spec of _arguments, brackets end the description and a colon a field.
  auto text = [](const std::string& s) {
    std::string out;
    for (const char c : s) {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
    return out;
  };
  auto spec = [](const std::string& s) { return quoted(s, "'\\''"); };
  std::string out = R"(#compdef flashgpt
# zsh completion of flashgpt: flashgpt completion zsh > DIR/_flashgpt, for a DIR of $fpath
_flashgpt() {
  local -a commands=(
)";
  for (const Command& c : commands()) out += "    " + spec(std::string(c.name) + ":" + text(c.summary)) + "\n";
  out += R"(  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
)";
  for (const Command& c : commands())
    if (!c.actions.empty())
      out += cat("  if [[ $words[2] == ", c.name, " ]] && (( CURRENT == 3 )); then\n    compadd -- ", joined(c.actions),
                 "\n    return\n  fi\n");
  out += "  case \"$words[2] $words[3]\" in\n";
  for (const CommandHelp& h : help_of_commands()) {
    out += cat("    \"", h.command, h.action.empty() ? " \"*" : " " + h.action + "\"", ")\n");
    out += h.action.empty() ? "      shift words; (( CURRENT-- ))\n" : "      shift 2 words; (( CURRENT -= 2 ))\n";
    out += "      _arguments -S '--help[this command]' '--config=[settings of a YAML file]:file:_files' \\\n";
    for (const OptionText& o : h.options) {
      const std::string help = "[" + text(o.help) + "]";
      if (o.value.empty()) {
        out += "        " + spec(o.flag + help) + " " + spec("--no-" + o.flag.substr(2) + help) + " \\\n";
        continue;
      }
      const std::string action = !o.words.empty() ? "(" + joined(o.words) + ")" : o.is_text ? "_files" : " ";
      out += "        " +
             spec(o.flag + (o.value_may_be_left_out ? "=-" : "=") + help + (o.value_may_be_left_out ? "::" : ":") + text(o.flag.substr(2)) +
                  ":" + action) +
             " \\\n";
    }
    out += "        '*:file:_files' ;;\n";
  }
  return out + "  esac\n}\nif [[ $funcstack[1] == _flashgpt ]]; then _flashgpt \"$@\"; else compdef _flashgpt flashgpt; fi\n";
}

std::string fish() {
  auto text = [](const std::string& s) {
    std::string escaped;
    for (const char c : s) escaped += c == '\\' ? std::string("\\\\") : std::string(1, c);
    return quoted(escaped, "\\'");
  };
  std::string out = "# fish completion of flashgpt: flashgpt completion fish > ~/.config/fish/completions/flashgpt.fish\n";
  for (const Command& c : commands()) {
    out += cat("complete -c flashgpt -f -n __fish_use_subcommand -a ", c.name, " -d ", text(c.summary), "\n");
    if (!c.actions.empty())
      out += cat("complete -c flashgpt -f -n '__fish_seen_subcommand_from ", c.name, "; and not __fish_seen_subcommand_from ",
                 joined(c.actions), "' -a '", joined(c.actions), "'\n");
  }
  for (const CommandHelp& h : help_of_commands()) {
    const std::string condition =
        "'__fish_seen_subcommand_from " + h.command + (h.action.empty() ? "" : "; and __fish_seen_subcommand_from " + h.action) + "'";
    const std::string start = "complete -c flashgpt -n " + condition;
    out += start + " -f -l help -d 'this command'\n" + start + " -r -F -l config -d 'settings of a YAML file'\n";
    for (const OptionText& o : h.options) {
      const std::string name = o.flag.substr(2);
      if (o.value.empty()) {
        out += start + " -f -l " + name + " -d " + text(o.help) + "\n" + start + " -f -l no-" + name + " -d " + text(o.help) + "\n";
        continue;
      }
      out += start + (o.value_may_be_left_out ? "" : " -r") + (!o.words.empty() || !o.is_text ? " -f" : " -F") + " -l " + name;
      if (!o.words.empty()) out += " -a '" + joined(o.words) + "'";
      out += " -d " + text(o.help) + "\n";
    }
  }
  return out;
}

}  // namespace

int completion(const std::vector<std::string>& args) {
  OptionTable table;
  const Arguments arguments = table.split(args);
  if (show_help(
          arguments,
          "usage: flashgpt completion bash | zsh | fish\n\nPrints a script for the shell's Tab key; its first lines say where it goes. For this bash: source "
          "<(flashgpt completion bash)",
          table))
    return 0;
  const std::string shell = arguments.positionals.size() == 1 ? arguments.positionals[0] : "";
  if (shell != "bash" && shell != "zsh" && shell != "fish")
    throw Error(ErrorCode::kUsage, cat("completion: '", shell, "', expected bash, zsh or fish"));
  std::fputs((shell == "bash" ? bash() : shell == "zsh" ? zsh() : fish()).c_str(), stdout);
  return 0;
}

}  // namespace flashgpt::cli
