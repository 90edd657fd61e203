// flashgpt train
#include <cmath>
#include <cstdio>
#include <optional>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/settings.h"
#include "data/corpora.h"
#include "data/prepare.h"
#include "io/file.h"
#include "io/folder_lock.h"
#include "io/terminal.h"
#include "io/text.h"
#include "model/checkpoint.h"
#include "train/run.h"
#include "train/signals.h"

namespace flashgpt::cli {
namespace {

namespace fs = std::filesystem;

void say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

// The data set that --data names; text is prepared into RUN/data first.
Dataset open_data(const Settings& s, const fs::path& run, bool goes_on, const std::string& init_from) {
  if (!s.data.empty() && exists(fs::path(s.data) / "meta.json")) return Dataset::open(s.data);
  const fs::path prepared = run / "data";
  if (goes_on && exists(prepared / "meta.json")) return Dataset::open(prepared.string());
  PrepareOptions options{.out = prepared.string(),
                         .val_fraction = s.val_fraction,
                         .max_bytes = s.max_bytes,
                         .vocab_size = s.vocab_size,
                         .threads = static_cast<int>(s.threads)};
  require(s.tokenizer.empty() || s.vocab_size == 0, "data.vocab_size = ", s.vocab_size,
          " learns a tokenizer and data.tokenizer = ", s.tokenizer, " takes one as it is: expected one of the two");
  if (!s.tokenizer.empty())
    options.tokenizer = Tokenizer::load(s.tokenizer);
  else if (s.vocab_size == 0 && !init_from.empty() && exists(fs::path(init_from) / "tokenizer.json"))
    options.tokenizer = Tokenizer::load(init_from);
  if (s.data.empty()) {
    const Corpus corpus = default_corpus();
    say("no --data given: training on " + corpus.description);
    options.inputs = corpus.paths;
    options.filter = corpus.filter;
  } else {
    options.inputs = {s.data};
  }
  say(summary(prepare(options)));
  return Dataset::open(prepared.string());
}

void make_data_absolute(Settings& s) {  // so that the run goes on from any folder
  if (!s.data.empty()) s.data = fs::absolute(s.data).lexically_normal().string();
}

// Keys that a run cannot change: its weights, its optimizer's state or its order of the data would mean something else.
bool fixed_by_run(const std::string& key) {
  return key.starts_with("model.") || key == "train_params.optimizer" || key == "train_params.context_len" || key == "seed";
}

// What is given now lies over the choices of the run: it must not be passed over in silence, nor clash with what the run chose by itself.
void settle_with_run(Settings& s, const OptionTable& table, const fs::path& run) {
  const std::string file = (run / "config.yaml").string(), micro_batch = "train_params.micro_batch", recompute = "train_params.recompute";
  Settings before;
  OptionTable table_before;
  add_training_options(table_before, before);
  read_settings(table_before, {.configs = {file}}, before);
  make_data_absolute(before);
  for (const Option& option : table.options()) {
    const std::string was = option.in_file ? table_before.text(option.key) : "", now = option.in_file ? table.text(option.key) : "";
    if (was == now || !table.given(option.key) || table.where(option.key).starts_with(file + ":")) continue;
    require(!fixed_by_run(option.key), option.key, " = ", now, ", but the run was started with ", was.empty() ? "none" : was,
            "; leave it out, or start anew with --init-from ", (run / "final").string());
    if (option.key == "train_params.max_seconds")
      say(cat("max_seconds = ", now, " is not used again: the run has ", s.train.steps, " steps since its start; steps changes them"));
    else if (option.key != "data.path")
      say(cat("changed for the rest of the run: ", option.key, " = ", now, " (was ", was, ")"));
  }
  std::error_code error;
  require(s.data == before.data || exists(fs::path(s.data) / "meta.json") || !exists(run / "data" / "meta.json") ||
              fs::equivalent(s.data, before.data, error),
          "data.path = ", s.data, ", but the run goes on with ", (run / "data").string(), ", prepared from ",
          before.data.empty() ? "the default text" : before.data, "; leave it out, or start anew with --init-from");

  // "auto" in a configuration that is given again means what the run chose; on the command line it asks for a new choice.
  auto typed = [&](const std::string& key) { return table.where(key) == key || table.where(key).starts_with("--"); };
  if (s.train.batch_size == before.train.batch_size && s.train.context_len == before.train.context_len) {
    if (s.train.micro_batch == 0 && !typed(micro_batch)) s.train.micro_batch = before.train.micro_batch;
    if (!s.train.recompute && !typed(recompute)) s.train.recompute = before.train.recompute;
  } else if (table.where(micro_batch).starts_with(file + ":")) {
    s.train.micro_batch = 0;  // the run's was for other rows
  }
}

Resume resume_named(const std::string& word) {
  if (word.empty()) return Resume::kNo;
  if (word == "auto") return Resume::kIfThere;
  if (word == "yes") return Resume::kMust;
  throw Error(ErrorCode::kUsage, "--resume = " + word + ", expected nothing (there must be a checkpoint) or auto (go on if there is one)");
}

}  // namespace

int train(const std::vector<std::string>& args) {
  Settings s;
  std::string out = "runs/default", resume_word, init_from;
  OptionTable table;
  add_training_options(table, s);
  table.add({.key = "out", .field = &out, .help = "folder of the run: log, checkpoints, final model", .in_file = false, .path = true});
  table.add({.key = "resume",
             .field = &resume_word,
             .help = "go on from the newest complete checkpoint; auto: if there is one",
             .bare = "yes",
             .in_file = false,
             .path = true});
  table.add({.key = "init_from", .field = &init_from, .help = "start with the weights of a model folder", .in_file = false, .path = true});
  Arguments arguments = table.split(args);
  if (show_help(arguments, "usage: flashgpt train [CONFIG.yaml] [--data PATH] [--out RUN] [--resume[=auto]] [section.key=value ...]",
                table))
    return 0;
  take_config(arguments, "train");
  table.apply({.settings = arguments.settings});
  if (!init_from.empty()) init_from = model_folder(init_from);
  const fs::path run = out;
  const Resume resume = resume_named(resume_word);
  // A run that goes on has every choice it made in its folder; what is given now is laid over it.
  const bool goes_on = resume != Resume::kNo && exists(run / "config.yaml");
  if (resume == Resume::kNo) require_new_run(run);  // before its data is prepared anew
  if (resume == Resume::kMust) require_resumable(run);
  require(init_from.empty() || !goes_on, "init_from = ", init_from,
          ", but the run goes on with its own weights; leave it out, or take another --out");
  Arguments all = arguments;
  if (goes_on) all.configs.insert(all.configs.begin(), (run / "config.yaml").string());
  read_settings(table, all, s);
  make_data_absolute(s);
  if (goes_on) settle_with_run(s, table, run);
  const FolderLock lock(run);

  const Target target = target_of(s);
  const std::unique_ptr<ThreadPool> pool = pool_of(target);
  const Dataset data = open_data(s, run, goes_on, init_from);
  if (!init_from.empty()) {
    s.train.model = load_model_config(init_from);
    s.model_loaded = true;
    table.reapply();
    if (exists(fs::path(init_from) / "tokenizer.json"))
      require(Tokenizer::load(init_from).hash() == data.tokenizer().hash(), "data was prepared with another tokenizer than that of ",
              init_from);
  }
  s.train = resolve_settings(table, s, target, &data, free_memory(target));
  if (s.train.max_seconds > 0 && !goes_on) {
    s.train.steps = steps_in_time(s.train, target, *pool, data);
    if (!table.given("train_params.warmup_steps")) s.train.warmup_steps.reset();
    s.train = resolve(s.train, target, free_memory(target));
    say(cat(s.train.steps, " steps fit in ", s.train.max_seconds, " s"));
  }
  s.train.max_seconds = 0;  // the configuration that is kept has the steps instead

  const EngineConfig engine = engine_config(s.train);
  say(cat(count_text(static_cast<double>(count(parameters(s.train.model)))), " parameters, ", s.train.batch_size, " x ",
          s.train.context_len, " tokens a step, ", description(target), ", ", bytes_text(Engine::plan(target, engine).total_bytes()),
          " of memory planned"));

  catch_stop_signals();
  Progress progress(2);
  const RunEvents events{
      .step =
          [&](const StepEvent& e) {
            const StepLine line{.step = e.step,
                                .steps = e.steps,
                                .loss = e.loss,
                                .tokens_per_second = e.tokens_per_second,
                                .memory_bytes = e.memory_bytes,
                                .eta_seconds = e.eta_seconds,
                                .learning_rate = e.learning_rate,
                                .grad_norm = e.grad_norm,
                                .skipped = e.skipped};
            progress.update(step_line(line, progress.width()), e.step == e.steps);
          },
      .validation =
          [&](const ValidationEvent& v) {
            progress.note(cat("validation at step ", v.step, ": loss ", fixed_text(v.loss, 4), ", perplexity ", fixed_text(v.perplexity, 2),
                              std::isfinite(v.bits_per_byte) ? ", " + fixed_text(v.bits_per_byte, 4) + " bits per byte"
                                                             : ", bits per byte not available (no whole text byte is held out)"));
          },
      .note = [&](const std::string& text) { progress.note(text); },
  };
  const RunResult result =
      flashgpt::train({.config = s.train, .config_text = table.to_yaml(), .run = run, .resume = resume, .initial_weights = init_from},
                      target, *pool, data, events);
  progress.finish();
  if (!result.finished) {
    say(cat("stopped by ", stop_signal_name(), " at step ", result.state.step, " of ", s.train.steps,
            "; saved. Go on with: flashgpt train --out ", out, " --resume"));
    return 0;
  }
  say(cat("done: ", result.state.step, " steps, ", result.state.skipped, " skipped. Model: ", (run / "final").string()));
  std::printf("%s\n", (run / "final").string().c_str());
  return 0;
}

}  // namespace flashgpt::cli
