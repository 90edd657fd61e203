// Faults of other trainers that lie in their data, replayed with the smallest trigger known.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "data/loader.h"
#include "data/prepare.h"
#include "data/temporary_folder.h"
#include "flashgpt/error.h"

namespace flashgpt::testing {
namespace {

struct Rows {
  std::vector<std::int32_t> tokens, targets, positions, cu_seqlens;
  Rows(std::int64_t rows, std::int64_t context_len)
      : tokens(static_cast<std::size_t>(rows * context_len)),
        targets(tokens.size()),
        positions(tokens.size()),
        cu_seqlens(tokens.size() + 1) {}
  RowBuffers buffers() {
    return {.tokens = tokens.data(), .targets = targets.data(), .positions = positions.data(), .cu_seqlens = cu_seqlens.data()};
  }
};

Dataset data_of(const TemporaryFolder& folder, const std::string& text, double val_fraction = 0.05) {
  prepare({.inputs = {folder.file("text.txt", text)}, .out = folder.path("out"), .val_fraction = val_fraction});
  return Dataset::open(folder.path("out"));
}

// More than 2^31 tokens and more than 4 GB in a shard (llm.c PR 822 and PR 828; llmq's header counts in int32). The file is sparse: a real
// shard's head and tail, with holes for tokens.
TEST(Replay, ShardOfMoreTokensThan31Bits) {
  const TemporaryFolder folder;
  {
    ShardWriter writer(folder.path("small"), Tokenizer::bytes().info());
    writer.end_document();
    writer.finish();
  }
  const std::string small = folder.read("small");
  constexpr std::uint64_t kTokens = (std::uint64_t{1} << 31) + 1000, kDocuments = 1;
  std::string tail = small.substr(small.size() - 128);
  std::memcpy(tail.data(), &kTokens, 8);
  std::memcpy(tail.data() + 8, &kDocuments, 8);
  const std::uint64_t sum = checksum64(std::string_view(tail).substr(0, 112));
  std::memcpy(tail.data() + 112, &sum, 8);
  const std::string path = folder.file("large.shard", small.substr(0, 16));
  const auto tokens_end = static_cast<off_t>(16 + 2 * kTokens);
  if (truncate(path.c_str(), tokens_end - 2) != 0) GTEST_SKIP() << "no sparse files of 4 GB here";
  std::ofstream(path, std::ios::binary | std::ios::app) << std::string("\x00\x01", 2) << std::string(8, '\0') << tail;

  const Shard shard = Shard::open(path, Verify::kSizes);
  EXPECT_EQ(shard.info().tokens, static_cast<std::int64_t>(kTokens));
  EXPECT_EQ(shard.document_starts().size(), 1u);
  const TokenStream stream({shard.tokens()}, Tokenizer::bytes().token_bytes(), 256);
  EXPECT_EQ(stream.size(), static_cast<std::int64_t>(kTokens));

  const ValidationLoader val(stream, 1024);
  Rows row(1, 1024);
  const RowCounts counts = val.fill(val.rows() - 1, 1, row.buffers());
  EXPECT_EQ(counts.targets, static_cast<std::int64_t>(kTokens % 1024) - 1);
  EXPECT_EQ(row.tokens[kTokens % 1024 - 1], 256);
  const TrainLoader train(stream, 1024, 1);
  EXPECT_EQ(train.rows_per_epoch(), static_cast<std::int64_t>(kTokens + 1023) / 1024);
  // A position of more than 2^31 rows: epoch 1,000.
  EXPECT_GE(train.fill(1000 * train.rows_per_epoch() + 5, 1, row.buffers()).targets, 1022);
}

// Ids above 65,535 in 16 bits (llm.c PR 736, Llama 3), ids from 32,768 on read as negative (Fast-LLM PR 540).
TEST(Replay, WidthOfTokensFollowsTheVocabulary) {
  const TemporaryFolder folder;
  for (const std::int64_t vocab : {32768, 40000, 65536, 65537, 128256}) {
    const TokenizerInfo tokenizer{.name = "large", .vocab_size = vocab, .end_of_text = 0, .hash = 1};
    ShardWriter writer(folder.path("a.shard"), tokenizer);
    const std::vector<std::int32_t> ids{1, 32767, static_cast<std::int32_t>(vocab) - 1};
    writer.append(ids, 3);
    writer.end_document();
    writer.finish();
    const Shard shard = Shard::open(folder.path("a.shard"));
    EXPECT_EQ(shard.info().token_width, vocab > 65536 ? 4 : 2);
    const TokenStream stream({shard.tokens()}, std::vector<std::int32_t>(static_cast<std::size_t>(vocab), 1), 0);
    std::vector<std::int32_t> back(4);
    stream.copy(0, 4, back.data());
    EXPECT_EQ(back, (std::vector<std::int32_t>{ids[0], ids[1], ids[2], 0}));
  }
}

// A text shorter than a row gave no sample at all, a negative bound or a division by zero (transformers 18167, 23424; litgpt 1450;
// RWKV-PEFT 52), and fewer rows than a step wants ended the run (litgpt 838, torchtitan 52).
TEST(Replay, TextShorterThanARow) {
  const TemporaryFolder folder;
  const Dataset data = data_of(folder, "short\n", 0);
  const TrainLoader loader(data.train(), 512, 1);
  EXPECT_EQ(loader.rows_per_epoch(), 1);
  Rows rows(18, 512);
  const RowCounts counts = loader.fill(7, 18, rows.buffers());
  EXPECT_EQ(counts.targets, 18 * 6);
  for (std::size_t r = 0; r < 18; ++r) {
    EXPECT_EQ(rows.tokens[r * 512], 's');
    EXPECT_EQ(rows.targets[r * 512 + 5], 256);
    EXPECT_EQ(rows.targets[r * 512 + 6], kIgnoredTarget);
    EXPECT_EQ(rows.targets[r * 512 + 511], kIgnoredTarget);
  }
}

// Out of data after 40 steps (torchtitan 52), an assertion in the last epoch, 165 epochs counted for 100 samples (Megatron 176, 1127).
TEST(Replay, TheOrderHasNoEnd) {
  const TemporaryFolder folder;
  const Dataset data = data_of(folder, "some text of a few rows, with nothing in it that matters\n", 0);
  const TrainLoader loader(data.train(), 8, 1);
  ASSERT_EQ(loader.rows_per_epoch(), 8);
  Rows rows(5, 8);  // does not divide an epoch
  std::int64_t targets = 0;
  for (std::int64_t step = 0; step < 80; ++step) targets += loader.fill(step * 5, 5, rows.buffers()).targets;
  EXPECT_EQ(targets, 50 * (data.train().size() - 1));
  EXPECT_EQ(loader.epoch(399), 49);
  EXPECT_EQ(loader.epoch(400), 50);
}

// End-of-text did not count as a token of its document, so bounds and documents drifted apart (Megatron 431).
TEST(Replay, EndOfTextBelongsToItsDocument) {
  const TemporaryFolder folder;
  prepare({.inputs = {folder.file("1.txt", "ab"), folder.file("2.txt", "c")}, .out = folder.path("out"), .val_fraction = 0});
  const Dataset data = Dataset::open(folder.path("out"));
  Rows row(1, 5);
  ValidationLoader(data.train(), 5).fill(0, 1, row.buffers());
  EXPECT_EQ(row.tokens, (std::vector<std::int32_t>{'a', 'b', 256, 'c', 256}));
  EXPECT_EQ(row.targets, (std::vector<std::int32_t>{'b', 256, -1, 256, -1}));
  EXPECT_EQ(row.positions, (std::vector<std::int32_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(row.cu_seqlens, (std::vector<std::int32_t>{0, 3, 5, 5, 5, 5}));
}

// One file: all of it went to validation and the training set was empty (nanochat PR 620).
TEST(Replay, OneFileHasBothSides) {
  const TemporaryFolder folder;
  for (std::size_t size : {2, 3, 10, 1000}) {
    const Dataset data = data_of(folder, std::string(size, 'x'));
    EXPECT_GT(data.train().size(), 1);
    EXPECT_TRUE(data.has_val());
    EXPECT_GE(data.train().size(), data.val().size());
  }
}

// A shuffle that differs from rank to rank gives some text twice and some never (TinyLlama 67): rows of all ranks are one order.
TEST(Replay, RanksTakeDisjointRowsOfOneOrder) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 64; ++i) text += std::string(7, static_cast<char>(' ' + i)) + "\n";
  const Dataset data = data_of(folder, text, 0);
  Rows rows(1, 8);
  std::vector<std::int64_t> seen(257, 0);
  const std::int64_t epoch = TrainLoader(data.train(), 8, 3).rows_per_epoch();
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const TrainLoader loader(data.train(), 8, 3);  // each rank makes its own
    for (std::int64_t r = rank; r < epoch; r += 4) {
      const RowCounts counts = loader.fill(r, 1, rows.buffers());
      ASSERT_LE(counts.targets, 8);
      for (std::size_t i = 0; i < 8; ++i) ++seen[static_cast<std::size_t>(rows.tokens[i])];
    }
  }
  for (int i = 0; i < 64; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(' ' + i)], 7);
}

// block_size -1 meant "the default" to one part and a length to the next (autotrain 432, transformers 27521).
TEST(Replay, ContextLengthIsChecked) {
  const TemporaryFolder folder;
  const Dataset data = data_of(folder, "text\n", 0);
  for (std::int64_t length : {-1, 0}) {
    EXPECT_NE(error_of([&] { TrainLoader(data.train(), length, 1); }).find("context_len = " + std::to_string(length)), std::string::npos);
    EXPECT_NE(error_of([&] { ValidationLoader(data.train(), length); }).find("context_len = "), std::string::npos);
  }
}

// A folder among the files was read as one (litgpt 1413).
TEST(Replay, FolderAmongTheFiles) {
  const TemporaryFolder folder;
  folder.file("in/a.txt", "first\n");
  folder.file("in/.ipynb_checkpoints/a.txt", "copy\n");
  folder.file("in/more.txt/b.txt", "second\n");
  const PrepareReport r = prepare({.inputs = {folder.path("in/*.txt")}, .out = folder.path("out"), .val_fraction = 0});
  EXPECT_EQ(r.info.train.documents, 2);
}

}  // namespace
}  // namespace flashgpt::testing
