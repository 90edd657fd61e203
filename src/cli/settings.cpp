#include "cli/settings.h"

#include <cstdio>

#include "core/cuda/gpu.h"
#include "core/gemm.h"
#include "io/file.h"
#include "train/checkpoint_files.h"

namespace flashgpt::cli {
namespace {

// Far above any training, and so low that no product of them overflows. Those of the model are complete()'s.
constexpr double kMostThreads = 4096, kMostRows = 1 << 20, kMostTokens = 0x1p31, kMostSteps = 0x1p40;

}  // namespace

void add_machine_options(OptionTable& table, Settings& s) {
  table.title("", "Machine");
  table.add({.key = "backend", .field = &s.backend, .help = "where to compute: auto (the CPU, in this version), cpu or cuda"});
  table.add({.key = "threads", .field = &s.threads, .help = "CPU threads", .min = 0, .max = kMostThreads, .words = {{"auto", 0}}});
}

void add_training_options(OptionTable& table, Settings& s) {
  add_machine_options(table, s);
  TrainConfig& t = s.train;
  t.model = preset_named(s.preset);
  ModelConfig& m = t.model;
  OptimizerConfig& o = t.optimizer;
  table.add({.key = "precision", .field = &s.precision, .help = "arithmetic: fp32"});
  table.add(
      {.key = "attention",
       .field = choice(t.attention),
       .help = "implementation: flash is tiled and needs memory linear in the context; standard keeps the score matrix, for comparison",
       .words = {{"auto", static_cast<int>(attention::Implementation::kAuto)},
                 {"flash", static_cast<int>(attention::Implementation::kFlash)},
                 {"standard", static_cast<int>(attention::Implementation::kStandard)}}});
  table.add({.key = "seed", .field = &t.seed, .help = "of the first weights and of the order of the data"});

  table.title("model", "Model");
  std::string names;
  for (const Preset& p : presets()) names += (names.empty() ? "" : ", ") + std::string(p.name);
  table.add({.key = "model.preset", .field = &s.preset, .help = "sizes to start from: " + names});
  table.add({.key = "model.family",
             .field = choice(m.family),
             .help = "gpt2: learned positions, LayerNorm, GELU; llama: RoPE, RMSNorm, SwiGLU; mpt: ALiBi, LayerNorm without bias",
             .words = {{"gpt2", 0}, {"llama", 1}, {"mpt", 2}}});
  table.add({.key = "model.layers", .field = &m.layers, .help = "blocks", .min = 1, .max = 1 << 12});
  table.add({.key = "model.width", .field = &m.width, .help = "of the residual stream", .min = 1, .max = 1 << 20});
  table.add({.key = "model.heads", .field = &m.heads, .help = "of queries", .min = 1, .max = 1 << 12});
  table.add(
      {.key = "model.kv_heads", .field = &m.kv_heads, .help = "of keys and values", .min = 0, .max = 1 << 12, .words = {{"heads", 0}}});
  table.add(
      {.key = "model.head_dim", .field = &m.head_dim, .help = "elements of a head", .min = 0, .max = 1 << 12, .words = {{"auto", 0}}});
  table.add({.key = "model.mlp_hidden",
             .field = &m.mlp_hidden,
             .help = "hidden width of the MLP",
             .min = 0,
             .max = 1 << 22,
             .words = {{"auto", 0}}});
  table.add({.key = "model.vocab_size",
             .field = &m.vocab_size,
             .help = "rows of the embedding; that of the data when not given",
             .min = 1,
             .max = 1 << 28});
  table.add({.key = "model.context_len",
             .field = &m.context_len,
             .help = "longest context; at least that of the training",
             .min = 1,
             .max = kMostTokens,
             .flag = "--model-context-len"});
  table.add({.key = "model.norm_eps", .field = &m.norm_eps, .help = "epsilon of the norms", .min = 0, .words = {{"auto", 0}}});
  table.add({.key = "model.rope_theta", .field = &m.rope_theta, .help = "base of RoPE (llama)", .min = 0, .above_min = true});
  table.add({.key = "model.rope_scaling",
             .field = choice(m.rope_scaling),
             .help = "longer contexts from RoPE's frequencies (llama): linear divides all by the factor, llama3 the slow ones",
             .words = {{"none", 0}, {"linear", 1}, {"llama3", 2}}});
  table.add({.key = "model.rope_factor", .field = &m.rope_factor, .help = "of rope_scaling", .min = 1});
  table.add({.key = "model.rope_low_freq",
             .field = &m.rope_low_freq,
             .help = "llama3 scaling: waves in the original context below which a frequency is divided",
             .min = 0,
             .above_min = true});
  table.add({.key = "model.rope_high_freq",
             .field = &m.rope_high_freq,
             .help = "llama3 scaling: waves in the original context above which a frequency stays",
             .min = 0,
             .above_min = true});
  table.add({.key = "model.rope_original_context",
             .field = &m.rope_original_context,
             .help = "llama3 scaling: the context that the model was first trained with",
             .min = 1});
  table.add({.key = "model.qkv_bias", .field = &m.qkv_bias, .help = "biases of q, k and v, as in Qwen2 (llama)"});
  table.add({.key = "model.qk_norm", .field = &m.qk_norm, .help = "RMSNorm of each head of q and k, as in Qwen3 (llama)"});
  table.add({.key = "model.window",
             .field = &m.window,
             .help = "keys that a token sees, itself included, as in Mistral (llama)",
             .min = 0,
             .words = {{"none", 0}}});
  table.add({.key = "model.tie_embeddings",
             .field = choice(m.tie_embeddings),
             .help = "the head shares the embedding's weights",
             .words = {{"auto", -1}, {"no", 0}, {"yes", 1}}});

  table.title("train_params", "Training");
  table.add(
      {.key = "train_params.batch_size", .field = &t.batch_size, .help = "sequences of an optimizer step", .min = 1, .max = kMostRows});
  table.add({.key = "train_params.micro_batch",
             .field = &t.micro_batch,
             .help = "sequences of a forward and backward; the step accumulates the rest",
             .min = 0,
             .max = kMostRows,
             .words = {{"auto", 0}}});
  table.add({.key = "train_params.context_len",
             .field = &t.context_len,
             .help = "tokens of a sequence",
             .min = 0,
             .max = kMostTokens,
             .words = {{"model", 0}}});
  table.add({.key = "train_params.steps", .field = &t.steps, .help = "optimizer steps of the run", .min = 1, .max = kMostSteps});
  table.add({.key = "train_params.max_seconds",
             .field = &t.max_seconds,
             .help = "time a few steps first and choose the number of steps that fills so many seconds",
             .min = 0,
             .words = {{"none", 0}}});
  table.add(
      {.key = "train_params.optimizer", .field = choice(o.kind), .help = "of the weights", .words = {{"adamw", 0}, {"adafactor", 1}}});
  table.add({.key = "train_params.learning_rate",
             .field = &o.learning_rate,
             .help = "the peak; absent, adamw takes one for the model's size and adafactor its relative step",
             .min = 0,
             .above_min = true});
  table.add({.key = "train_params.relative_step", .field = &o.relative_step, .help = "adafactor's own rate, by name"});
  table.add({.key = "train_params.schedule",
             .field = choice(t.schedule),
             .help = "of the learning rate after warm-up",
             .words = {{"cosine", 0}, {"linear", 1}, {"constant", 2}, {"wsd", 3}}});
  table.add({.key = "train_params.warmup_steps",
             .field = &t.warmup_steps,
             .help = "steps until the peak",
             .min = 0,
             .max = kMostSteps,
             .absent = "auto"});
  table.add({.key = "train_params.final_lr_fraction",
             .field = &t.final_lr_fraction,
             .help = "of the peak, at the last step",
             .min = 0,
             .max = 1});
  table.add({.key = "train_params.weight_decay", .field = &o.weight_decay, .help = "of matrices", .min = 0});
  table.add(
      {.key = "train_params.beta1", .field = &o.beta1, .help = "AdamW: decay of the first moment", .min = 0, .max = 1, .below_max = true});
  table.add(
      {.key = "train_params.beta2", .field = &o.beta2, .help = "AdamW: decay of the second moment", .min = 0, .max = 1, .below_max = true});
  table.add({.key = "train_params.grad_clip",
             .field = &t.grad_clip,
             .help = "largest global norm of the gradient",
             .min = 0,
             .words = {{"none", 0}}});
  table.add({.key = "train_params.recompute",
             .field = choice(t.recompute),
             .help = "what backward computes again instead of keeping it",
             .words = {{"none", 0}, {"act", 1}, {"mlp", 2}, {"block", 3}},
             .absent = "auto"});
  table.add({.key = "train_params.max_skips",
             .field = &t.max_skips,
             .help = "steps in a row with a loss or gradient that is not finite before the run stops",
             .min = 1});
  table.add({.key = "train_params.log_every", .field = &t.log_every, .help = "steps", .min = 1});
  table.add(
      {.key = "train_params.eval_every", .field = &t.eval_every, .help = "steps between validations", .min = 0, .words = {{"end", 0}}});
  table.add({.key = "train_params.eval_rows",
             .field = &t.eval_rows,
             .help = "sequences of a validation on the way; the last one takes all",
             .min = 0,
             .words = {{"all", 0}}});
  table.add(
      {.key = "train_params.save_every", .field = &t.save_every, .help = "steps between checkpoints", .min = 0, .words = {{"end", 0}}});
  table.add({.key = "train_params.keep_last", .field = &t.keep_last, .help = "checkpoints kept", .min = 0, .words = {{"all", 0}}});

  table.add({.key = "train_params.max_shard_size",
             .field = &t.max_shard_size,
             .help = "bytes of a file of weights; a larger model is saved in several",
             .min = 1,
             .size = true});

  table.title("data", "Data");
  table.add({.key = "data.path",
             .field = &s.data,
             .help = "a folder of `flashgpt data prepare`, or text: a file, folder or pattern",
             .flag = "--data",
             .path = true});
  table.add({.key = "data.val_fraction",
             .field = &s.val_fraction,
             .help = "part of the text held out, when text is given",
             .min = 0,
             .max = 0.5});
  table.add({.key = "data.vocab_size",
             .field = &s.vocab_size,
             .help = "learn a byte-level BPE of so many ids, when text is given; else a token is a byte",
             .min = 0,
             .max = 1 << 28,
             .words = {{"bytes", 0}},
             .flag = "--data-vocab-size"});
  table.add({.key = "data.tokenizer",
             .field = &s.tokenizer,
             .help = "a tokenizer.json, or a model folder with one, to take instead; with --init-from, the model's own",
             .path = true});
  table.add({.key = "data.max_bytes",
             .field = &s.max_bytes,
             .help = "take a sample of about so much text",
             .min = 0,
             .size = true,
             .words = {{"all", 0}}});
}

void take_config(Arguments& arguments, const std::string& command) {
  limit_positionals(arguments, command, 1);
  for (const std::string& file : arguments.positionals) {
    if (!file.ends_with(".yaml") && !file.ends_with(".yml") && !exists(std::filesystem::path(file)))
      throw Error(ErrorCode::kUsage, cat(command, ": '", file, "' is neither an option nor a configuration file"));
    arguments.configs.push_back(file);
  }
}

void read_settings(OptionTable& table, const Arguments& arguments, Settings& s) {
  s.train.model = preset_named(s.preset);
  for (const std::string& file : arguments.configs) table.load(file);
  table.apply(arguments);
  s.train.model = preset_named(s.preset);
  table.reapply();
  s.train.model_context_given = table.given("model.context_len");
  require(s.precision == "fp32", "precision = ", s.precision, ", expected fp32 on the CPU");
}

std::string model_folder(const std::string& path) {
  const std::filesystem::path run = path;
  if (exists(run / "config.json")) return path;
  std::string found;
  if (exists(run / "final" / "config.json"))
    found = (run / "final").string();
  else if (exists(run / "checkpoints"))
    if (const auto checkpoint = newest_checkpoint(run, [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }))
      found = checkpoint->folder.string();
  if (found.empty()) return path;
  std::fprintf(stderr, "%s is a run: taking %s\n", path.c_str(), found.c_str());
  return found;
}

Target target_of(const Settings& s) {
  if (s.backend == "cuda") {
    Target gpu = cuda::gpu_target(0);
    gpu.threads = 1;
    return gpu;
  }
  require(s.backend == "auto" || s.backend == "cpu", "backend = ", s.backend, ", expected auto, cpu or cuda");
  return cpu_target(s.threads > 0 ? static_cast<int>(s.threads) : default_threads());
}

std::string description(const Target& target) {
  if (target.device.kind == DeviceKind::kCpu)
    return cat(target.threads, target.threads == 1 ? " thread, " : " threads, ", name_of(target.isa));
  return cat("GPU of compute capability ", target.compute_capability / 10, ".", target.compute_capability % 10, ", ",
             target.multiprocessors, " multiprocessors");
}

std::unique_ptr<ThreadPool> pool_of(const Target& target) {
  blas_self_test();
  return std::make_unique<ThreadPool>(target.threads, claim_cpus());
}

TrainConfig resolve_settings(const OptionTable& table, const Settings& s, const Target& target, const Dataset* data,
                             std::int64_t free_memory) {
  TrainConfig c = s.train;
  if (data && !s.model_loaded && !table.given("model.vocab_size")) c.model.vocab_size = data->info().tokenizer.vocab_size;
  return resolve(c, target, free_memory);
}

}  // namespace flashgpt::cli
