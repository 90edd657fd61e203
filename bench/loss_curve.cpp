// One side of the comparison with PyTorch (bench/loss_curve_torch.py): trains a GPT-2-like model of 10M parameters for 300 steps and leaves
// in OUT
//   model/            the initial weights, a Hugging Face folder
//   batches.bin       int32: steps, rows, tokens a row; then for each step tokens, targets, positions [rows * tokens]
//   flashgpt.csv      step,loss
// loss_curve DATA_FOLDER OUT
#include <cstdio>
#include <fstream>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "io/file.h"
#include "model/checkpoint.h"
#include "train/config.h"

using namespace flashgpt;

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: loss_curve DATA_FOLDER OUT\n");
    return 2;
  }
  try {
    const Dataset data = Dataset::open(argv[1]);
    const std::filesystem::path out = argv[2];
    const int threads = default_threads();
    TrainConfig c;
    c.model = {.layers = 6, .width = 384, .heads = 6, .vocab_size = data.info().tokenizer.vocab_size, .context_len = 256};
    c.batch_size = 4;
    c.steps = 300;
    c.warmup_steps = 30;
    c.optimizer.learning_rate = 1e-3;
    c = resolve(c, cpu_target(threads), free_host_memory());
    ThreadPool pool(threads, true);
    Engine engine(cpu_target(threads), engine_config(c), pool);
    engine.initialise_weights(1);
    make_directories(out / "model");
    save_model(engine.context(), c.model, engine.params(), engine.weights(), {.end_of_text = data.info().tokenizer.end_of_text},
               out / "model");

    const TrainLoader loader(data.train(), c.context_len, c.seed);
    StepRows all(c.batch_size, c.batch_size, c.context_len), rows(c.batch_size, c.micro_batch, c.context_len);
    std::ofstream batches(out / "batches.bin", std::ios::binary), csv(out / "flashgpt.csv");
    const std::int32_t head[3] = {static_cast<std::int32_t>(c.steps), static_cast<std::int32_t>(c.batch_size),
                                  static_cast<std::int32_t>(c.context_len)};
    batches.write(reinterpret_cast<const char*>(head), sizeof head);
    csv << "step,loss\n";
    csv.precision(9);
    for (std::int64_t step = 1; step <= c.steps; ++step) {
      const std::int64_t position = (step - 1) * c.batch_size;
      all.fill(loader, position);
      for (const std::int32_t* part : {all.micro(0).tokens, all.micro(0).targets, all.micro(0).positions})
        batches.write(reinterpret_cast<const char*>(part), c.batch_size * c.context_len * 4);
      const RowCounts counts = rows.fill(loader, position);
      engine.begin_step({.learning_rate = step_rate(c, step), .targets = counts.targets, .update = step, .max_norm = c.grad_clip});
      for (std::int64_t m = 0; m < rows.micro_batches(); ++m) {
        const RowBuffers b = rows.micro(m);
        engine.micro_step({b.tokens, b.targets, b.positions, b.cu_seqlens});
      }
      csv << step << ',' << engine.end_step().loss_sum / static_cast<double>(counts.targets) << '\n';
      if (step % 50 == 0) std::fprintf(stderr, "step %lld\n", static_cast<long long>(step));
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "loss_curve: %s\n", e.what());
    return 1;
  }
}
