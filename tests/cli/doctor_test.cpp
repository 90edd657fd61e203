// flashgpt doctor, as a program: what it says where something is amiss, made so by the environment.
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "replay/program.h"

namespace flashgpt {
namespace {

using testing::Program;

struct Report {
  int code = 0;
  Json json;
  Json check(const std::string& name) const {
    for (const Json& c : json.at("checks"))
      if (c.at("name") == name) return c;
    ADD_FAILURE() << "no check " << name;
    return {};
  }
};

// environment: "NAME=VALUE" each, of the child alone.
Report doctor(const std::vector<std::string>& environment, const std::vector<std::string>& args = {}) {
  std::vector<std::string> names;
  for (const std::string& e : environment) {
    names.push_back(e.substr(0, e.find('=')));
    ::setenv(names.back().c_str(), e.substr(e.find('=') + 1).c_str(), 1);
  }
  std::vector<std::string> all{"doctor", "--json"};
  all.insert(all.end(), args.begin(), args.end());
  const std::string output = ::testing::TempDir() + "flashgpt-doctor-" + std::to_string(::getpid());
  Program program(all, output);
  for (const std::string& n : names) ::unsetenv(n.c_str());
  Report r{.code = program.wait()};
  r.json = parse_json(program.output(), "doctor");
  std::filesystem::remove(output);
  return r;
}

TEST(Doctor, EveryLineOfASoundMachineHasAFinding) {
  const Report r = doctor({}, {::testing::TempDir()});
  EXPECT_EQ(r.code, 0) << r.json.dump(1);
  for (const char* name : {"processor", "isa", "blas", "threads", "memory", "huge_pages", "disk", "gpu", "nvrtc", "cache"}) {
    const Json c = r.check(name);
    EXPECT_FALSE(c.at("found").get<std::string>().empty()) << name;
    EXPECT_EQ(c.at("status") == "ok", c.at("advice").get<std::string>().empty()) << c.dump();
  }
}

TEST(Doctor, WarnsOfAChoiceThatCostsSpeed) {
  const Report r = doctor({"FLASHGPT_ISA=portable", "OPENBLAS_CORETYPE=Prescott"}, {::testing::TempDir()});
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.json.at("status"), "warning");
  EXPECT_EQ(r.check("isa").at("status"), "warning");
  EXPECT_NE(r.check("isa").at("advice").get<std::string>().find("unset FLASHGPT_ISA"), std::string::npos);
  EXPECT_NE(r.check("blas").at("advice").get<std::string>().find("unset OPENBLAS_CORETYPE"), std::string::npos);
}

TEST(Doctor, FoldersThatCannotBeWritten) {
  const Report r = doctor({"FLASHGPT_CACHE=/proc/none/cache"}, {"/proc/none/runs"});
  EXPECT_EQ(r.code, 4);
  EXPECT_EQ(r.json.at("status"), "error");
  EXPECT_EQ(r.check("disk").at("status"), "error");
  EXPECT_EQ(r.check("cache").at("status"), "warning");
  EXPECT_FALSE(r.check("cache").at("advice").get<std::string>().empty());
}

TEST(Doctor, ABrokenChoiceIsAnErrorOfItsLineAlone) {
  const Report r = doctor({"FLASHGPT_ISA=avx1024"}, {::testing::TempDir()});
  EXPECT_EQ(r.code, 4);
  EXPECT_EQ(r.check("isa").at("status"), "error");
  EXPECT_EQ(r.check("processor").at("status"), "ok");
}

TEST(Doctor, LeavesNothingBehind) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / ("flashgpt-doctor-runs-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  doctor({"FLASHGPT_CACHE=" + (folder / "cache").string()}, {(folder / "runs").string()});
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flashgpt
