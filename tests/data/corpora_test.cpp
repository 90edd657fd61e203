#include "data/corpora.h"

#include <gtest/gtest.h>

#include "data/temporary_folder.h"
#include "flashgpt/error.h"

namespace flashgpt::testing {
namespace {

TEST(Corpora, TheBestThatIsInstalled) {
  const TemporaryFolder root;
  EXPECT_TRUE(installed_corpora(root.path(), 10).empty());
  EXPECT_NE(error_of([&] { default_corpus(root.path(), 10); }).find("apt install"), std::string::npos);

  root.file("usr/include/stdio.h", "int printf(const char*, ...);\n");
  root.file("usr/lib/python3.11/os.py", "import abc\n");
  root.file("usr/lib/python3.11/site-packages/other.py", "not the standard library\n");
  Corpus c = default_corpus(root.path(), 10);
  EXPECT_EQ(c.name, "system-headers");
  EXPECT_EQ(c.paths, (std::vector<std::string>{root.path("usr/include"), root.path("usr/lib/python3.11")}));
  EXPECT_EQ(c.files, 2);
  EXPECT_EQ(c.bytes, 41);

  root.file("usr/share/doc/python3/html/_sources/about.rst.txt", "About these documents\n");
  EXPECT_EQ(default_corpus(root.path(), 10).name, "python-doc");

  root.file("usr/src/linux-source-6.1.tar.xz", "packed, so of no use");
  EXPECT_EQ(default_corpus(root.path(), 10).name, "python-doc");
  root.file("usr/src/linux-source-6.1/kernel/fork.c", "int fork(void);\n");
  root.file("usr/src/linux-source-6.1/drivers/asic_reg/x.h", "#define REGISTER 1\n");
  c = default_corpus(root.path(), 10);
  EXPECT_EQ(c.name, "linux-source");
  EXPECT_EQ(c.files, 1);
  EXPECT_EQ(installed_corpora(root.path(), 10).size(), 3u);
  EXPECT_EQ(default_corpus(root.path(), 20).name, "python-doc");  // 16 bytes of source are too few
}

}  // namespace
}  // namespace flashgpt::testing
