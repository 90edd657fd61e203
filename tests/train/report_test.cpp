// The page of a run: what it shows, and that nothing of the run's text becomes markup.
#include "train/report.h"

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/test_folder.h"

namespace flashgpt {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string step(int n, const char* loss) {
  return cat(R"({"step":)", n, R"(,"loss":)", loss, R"(,"learning_rate":0.001,"grad_norm":1.5,"tokens_per_second":1000,"tokens":)", n * 100,
             R"(,"skipped":1,"resident_bytes":104857600})", "\n");
}

TEST(Report, ShowsARunInProgress) {
  const TestFolder run;
  std::string log =
      R"({"event":"start","step":0,"parameters":918912,"steps":10,"batch_size":4,"context_len":256,"threads":2,"blas":"X","memory_bytes":1048576})"
      "\n";
  log += step(1, "5.0") + step(2, "null") + "no json\n[1]\n{\"step\":\"three\"}\n" + step(3, "4.0");
  log += R"({"event":"validation","step":3,"loss":4.5,"perplexity":90.0,"bits_per_byte":6.25,"targets":10})"
         "\n";
  log += R"({"event":"resume","step":3,"steps":10})"
         "\n";
  log += step(4, "3.0") + "{\"step\":5,\"lo";  // a kill
  write_atomic(run / "train.jsonl", log);
  const std::string page = html_report(run.path());
  EXPECT_TRUE(has(page, "<b>4 of 10</b>"));
  EXPECT_TRUE(has(page, "<b>4.5000</b>"));  // held-out loss
  EXPECT_TRUE(has(page, "<b>6.2500</b>"));  // bits per byte
  EXPECT_TRUE(has(page, "resumed 1 time"));
  EXPECT_TRUE(has(page, "class=\"mark\""));
  EXPECT_TRUE(has(page, "steps skipped"));
  EXPECT_TRUE(has(page, "Memory of the process"));
  EXPECT_FALSE(has(page, "Samples"));
  EXPECT_FALSE(has(page, "nan"));
  for (const char* outside : {"<script", "http:", "https:", "src=", "@import", "url("}) EXPECT_FALSE(has(page, outside)) << outside;
}

TEST(Report, TextOfTheRunIsNoMarkup) {
  const TestFolder run;
  write_atomic(run / "train.jsonl", step(1, "5.0"));
  write_atomic(run / "config.yaml", "data:\n  path: \"</pre><script>alert(1)</script>\"\n");
  const std::string page = html_report(run.path(), {{.prompt = "<i>", .text = "<script>x</script>"}});
  EXPECT_FALSE(has(page, "<script"));
  EXPECT_FALSE(has(page, "<i>"));
  EXPECT_TRUE(has(page, "&lt;/pre&gt;&lt;script&gt;"));
  EXPECT_TRUE(has(page, "Samples"));
}

TEST(Report, ARunWithoutStepsIsAnError) {
  const TestFolder run;
  expect_error([&] { html_report(run.path()); }, "holds no train.jsonl");
  write_atomic(run / "train.jsonl", "{\"event\":\"start\",\"step\":0}\n");
  expect_error([&] { html_report(run.path()); }, "holds no step yet");
}

}  // namespace
}  // namespace flashgpt
