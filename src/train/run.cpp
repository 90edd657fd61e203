#include "train/run.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/gemm.h"
#include "data/loader.h"
#include "io/event_file.h"
#include "io/file.h"
#include "io/json.h"
#include "io/log.h"
#include "io/process.h"
#include "model/checkpoint.h"
#include "model/hf_config.h"
#include "train/signals.h"

namespace flashgpt {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string blas_name(const Target& target) { return cat(blas_description(), ", ", name_of(target.isa)); }

StepResult run_step(Engine& engine, const TrainConfig& c, StepRows& rows, const TrainLoader& loader, const TrainerState& state,
                    RowCounts& counts) {
  counts = rows.fill(loader, state.position);
  if (counts.targets == 0) return {};  // documents without text, nothing to learn from
  engine.begin_step(
      {.learning_rate = step_rate(c, state.step + 1), .targets = counts.targets, .update = state.updates + 1, .max_norm = c.grad_clip});
  for (std::int64_t m = 0; m < rows.micro_batches(); ++m) engine.micro_step(host_batch(rows.micro(m)));
  return engine.end_step();
}

// The log of a run that goes on at `step`: lines of later steps, written before a kill, are dropped, since these steps come again.
void cut_log(const fs::path& path, std::int64_t step) {
  if (!exists(path)) return;
  const std::string text = read_file(path);
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;  // a line cut by the kill
    const Json line = Json::parse(text.substr(at, end - at), nullptr, false);
    const bool whole = line.is_object() && (!line.contains("step") || line["step"].is_number_integer());
    if (whole && line.value("step", std::int64_t{0}) <= step) kept += text.substr(at, end + 1 - at);
    at = end + 1;
  }
  if (kept != text) write_atomic(path, kept);
}

Json start_line(const TrainConfig& c, const Engine& engine, const Dataset& data, const TrainerState& state, const Target& target) {
  return {{"event", state.step ? "resume" : "start"},
          {"step", state.step},
          {"parameters", count(engine.params())},
          {"batch_size", c.batch_size},
          {"micro_batch", c.micro_batch},
          {"context_len", c.context_len},
          {"recompute", name_of(*c.recompute)},
          {"steps", c.steps},
          {"threads", target.threads},
          {"blas", blas_name(target)},
          {"memory_bytes", engine.memory_plan().total_bytes()},
          {"data_checksum", data.info().checksum()},
          {"train_tokens", data.info().train.tokens}};
}

Json json_of(const ValidationEvent& v) {
  return {{"event", "validation"}, {"step", v.step}, {"loss", v.loss}, {"perplexity", v.perplexity}, {"bits_per_byte", v.bits_per_byte},
          {"targets", v.targets}};
}

}  // namespace

std::int64_t steps_in_time(const TrainConfig& config, const Target& target, ThreadPool& pool, const Dataset& data) {
  Engine engine(target, engine_config(config), pool);
  engine.initialise_weights(config.seed);
  StepRows rows(config.batch_size, config.micro_batch, config.context_len);
  const TrainLoader loader(data.train(), config.context_len, config.seed);
  TrainerState state;
  RowCounts counts;
  run_step(engine, config, rows, loader, state, counts);  // first touch of the memory
  const Clock::time_point start = Clock::now();
  int timed = 0;
  do {
    run_step(engine, config, rows, loader, state, counts);
    ++timed;
  } while (timed < 3 && seconds_since(start) < 0.05 * config.max_seconds);
  const double step = seconds_since(start) / timed;
  double validation = 0;
  if (data.has_val() && config.eval_every > 0) {
    const Clock::time_point begin = Clock::now();
    const std::int64_t some = std::max<std::int64_t>(config.micro_batch, 1);
    validate(engine, engine_config(config), data, some);
    const std::int64_t eval_rows = ValidationLoader(data.val(), config.context_len).rows();
    validation = seconds_since(begin) / static_cast<double>(some) *
                 static_cast<double>(config.eval_rows > 0 ? std::min(config.eval_rows, eval_rows) : eval_rows) /
                 static_cast<double>(config.eval_every);
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(config.max_seconds / (step + validation)));
}

void require_new_run(const fs::path& run) {
  require(!exists(run / "checkpoints") && !exists(run / "final"), run.string(),
          ": holds a run already; use --resume to go on with it, or another --out");
}

void require_resumable(const fs::path& run) {
  require(exists(run / "config.yaml") && exists(run / "checkpoints"), run.string(), ": there is no run to go on with here");
}

RunResult train(const RunOptions& options, const Target& target, ThreadPool& pool, const Dataset& data, const RunEvents& events) {
  const TrainConfig& c = options.config;
  const fs::path run = options.run;
  require(c.model.vocab_size >= data.info().tokenizer.vocab_size, "model.vocab_size = ", c.model.vocab_size,
          ", but the data has ids up to ", data.info().tokenizer.vocab_size - 1);

  const SaveOptions save_options{.end_of_text = data.info().tokenizer.end_of_text,
                                 .max_shard_bytes = static_cast<std::uint64_t>(c.max_shard_size)};
  hf_config_json(c.model, save_options.end_of_text);  // a model that no format can hold is an error now, not when it is saved

  std::optional<Checkpoint> from;
  if (options.resume != Resume::kNo) from = newest_checkpoint(run, events.note);
  require(from || options.resume != Resume::kMust, run.string(), ": there is no complete checkpoint to resume from");
  if (options.resume == Resume::kNo) require_new_run(run);

  Engine engine(target, engine_config(c), pool);
  TrainerState state{.data_checksum = data.info().checksum(), .seed = c.seed, .context_len = c.context_len, .blas = blas_name(target)};
  if (from) {
    const TrainerState saved = load_checkpoint(engine, *from);
    require(saved.data_checksum == state.data_checksum,
            "data: the checkpoint was trained on other data than this; give the data it had, or start "
            "anew with --init-from ",
            from->folder.string());
    require(saved.seed == c.seed, "seed = ", c.seed, ", but the checkpoint was trained with ", saved.seed);
    require(saved.context_len == 0 || saved.context_len == c.context_len, "train_params.context_len = ", c.context_len,
            ", but the checkpoint counts rows of ", saved.context_len, " tokens; to change it, start anew with --init-from ",
            from->folder.string());
    if (saved.blas != state.blas)
      events.note("this machine computes with " + state.blas + ", the checkpoint with " + saved.blas +
                  ": the run goes on, but not with the same bits");
    state = saved;
    state.blas = blas_name(target);
    state.context_len = c.context_len;
    events.note(cat("going on from ", from->folder.string(), ", step ", state.step, " of ", c.steps,
                    state.step > c.steps ? ": more than asked for, nothing is left to train" : ""));
  } else {
    engine.initialise_weights(c.seed);
    if (!options.initial_weights.empty()) load_weights(engine.context(), engine.params(), engine.weights(), options.initial_weights);
  }

  make_directories(run);
  if (state.step <= c.steps) write_atomic(run / "config.yaml", options.config_text);  // else nothing is trained, and the run stays as it is
  if (from)
    cut_log(run / "train.jsonl", state.step);
  else
    remove_tree(run / "train.jsonl");
  JsonLines log(run / "train.jsonl");
  log.write(compact_json(start_line(c, engine, data, state, target)));
  EventFile board(run, state.step + 1);

  StepRows rows(c.batch_size, c.micro_batch, c.context_len);
  const TrainLoader loader(data.train(), c.context_len, c.seed);
  const double seconds_before = state.seconds;
  const Clock::time_point start = Clock::now();
  std::int64_t saved_step = from ? state.step : -1;
  bool save_due = false, prune_due = from.has_value();
  RunResult result;
  auto save = [&] {
    if (saved_step == state.step) return;
    state.seconds = seconds_before + seconds_since(start);
    save_checkpoint(
        engine, c.model, state, save_options, [&](const fs::path& folder) { data.tokenizer().save(folder.string()); }, run);
    saved_step = state.step;
    prune_due = true;
  };
  // A checkpoint whose weights have not yet given a finite loss may be worthless: those before it stay until then.
  auto prune = [&] {
    if (prune_due) prune_checkpoints(run, c.keep_last, saved_step);
    prune_due = false;
  };
  auto evaluate = [&](std::int64_t eval_rows) {
    if (!data.has_val()) return;
    ValidationEvent v = validate(engine, engine_config(c), data, eval_rows);
    v.step = state.step;
    result.validation = v;
    if (v.cut) return;
    log.write(compact_json(json_of(v)));
    board.write(v.step,
                {{"validation/loss", v.loss}, {"validation/perplexity", v.perplexity}, {"validation/bits_per_byte", v.bits_per_byte}});
    events.validation(v);
  };

  const std::int64_t first_step = state.step;
  while (state.step < c.steps && !stop_requested()) {
    const Clock::time_point step_start = Clock::now();
    const double rate = step_rate(c, state.step + 1);
    RowCounts counts;
    const StepResult r = run_step(engine, c, rows, loader, state, counts);
    state.step += 1;
    state.position += c.batch_size;
    state.tokens += counts.targets;
    state.updates += !r.skipped && counts.targets > 0;
    state.skipped += r.skipped;
    state.skipped_in_row = r.skipped ? state.skipped_in_row + 1 : 0;

    StepEvent e{.step = state.step,
                .steps = c.steps,
                .loss = counts.targets > 0 ? r.loss_sum / static_cast<double>(counts.targets) : std::nan(""),
                .learning_rate = rate,
                .grad_norm = r.grad_norm,
                .tokens_per_second = static_cast<double>(c.batch_size * c.context_len) / seconds_since(step_start),
                .skipped = state.skipped,
                .memory_bytes = engine.memory_plan().total_bytes()};
    e.eta_seconds = seconds_since(start) / static_cast<double>(state.step - first_step) * static_cast<double>(c.steps - state.step);
    if (r.skipped || state.step % c.log_every == 0 || state.step == c.steps) {
      log.write(compact_json(Json{{"step", e.step},
                                  {"loss", e.loss},
                                  {"learning_rate", e.learning_rate},
                                  {"grad_norm", e.grad_norm},
                                  {"tokens_per_second", e.tokens_per_second},
                                  {"tokens", state.tokens},
                                  {"skipped", e.skipped},
                                  {"resident_bytes", process_memory().resident}}));
      board.write(e.step, {{"train/loss", e.loss},
                           {"train/learning_rate", e.learning_rate},
                           {"train/grad_norm", e.grad_norm},
                           {"train/tokens_per_second", e.tokens_per_second},
                           {"train/tokens", static_cast<double>(state.tokens)},
                           {"train/skipped", static_cast<double>(e.skipped)}});
      events.step(e);
    }
    if (state.skipped_in_row >= c.max_skips) {
      throw Error(ErrorCode::kFailure,
                  cat("step ", state.step, ": ", state.skipped_in_row, state.skipped_in_row == 1 ? " step" : " steps",
                      " in a row had a loss or gradient that is not finite; stopped without saving. ",
                      saved_step >= 0 ? cat("The last checkpoint is of step ", saved_step) : "There is no checkpoint yet",
                      "; a lower learning rate (now ", rate, ") may help"));
    }
    if (!r.skipped) prune();
    const bool last = state.step == c.steps;
    if (!last && c.eval_every > 0 && state.step % c.eval_every == 0 && !stop_requested()) evaluate(c.eval_rows);
    save_due |= c.save_every > 0 && state.step % c.save_every == 0;
    if (!last && save_due && !r.skipped) {  // weights that just gave no finite loss can wait
      save();
      save_due = false;
    }
  }

  save();  // before the last validation, which may be long
  if (state.step >= c.steps) {
    evaluate(0);
    result.finished = !result.validation.cut;
  }
  if (result.finished) {
    if (std::isfinite(result.validation.loss)) prune();
    const fs::path final = run / "final", temporary = run / "final.tmp";
    remove_tree(temporary);
    make_directories(temporary);
    save_model(engine.context(), c.model, engine.params(), engine.weights(), save_options, temporary);
    data.tokenizer().save(temporary.string());
    remove_tree(final);
    rename_path(temporary, final);
  }
  result.state = state;
  return result;
}

}  // namespace flashgpt
