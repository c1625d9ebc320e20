// lab_host: the process in which a submission runs. `lockstep grade` starts it in a sandbox, and
// reads one line of JSON from its standard output; what the submission prints goes to standard
// error.
//
//   lab_host FOLDER
//       loads FOLDER/lab.so, the submission, and FOLDER/subject.so, the lab's module, and hands it
//       the cases in FOLDER/inputs.json
#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "tutorials/labs/lab.h"

namespace {

using lockstep::ErrorCode;
using lockstep::require;
using nlohmann::json;
using Subject = void(const json&, json&);

// "undefined symbol: lab::ring_all_reduce(...)" of what dlopen says.
std::string readable_problem(std::string text) {
  const std::string key = "undefined symbol: ";
  const std::size_t begin = text.find(key);
  if (begin == std::string::npos) return text;
  const std::string name = text.substr(begin + key.size());
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return key + (status == 0 ? plain.get() : name);
}

void* load(const std::string& path, int flags) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | flags);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    lockstep::fail(ErrorCode::Io, "load", "{}", readable_problem(why ? why : "no reason given"));
  }
  return library;
}

// {"answer": ...} or what happened instead.
json run_case(Subject* subject, const json& inputs) {
  json result;
  try {
    json answer;
    subject(inputs, answer);
    result["answer"] = std::move(answer);
  } catch (const lab::NotDone& blank) {
    result["not_done"] = blank.what();
  } catch (const std::exception& error) {
    result["threw"] = error.what();
  } catch (...) {
    result["threw"] = "something that is not a std::exception";
  }
  return result;
}

json run_cases(const std::string& folder, const json& cases) {
  json results = json::array();
  load(folder + "/lab.so", RTLD_GLOBAL);
  void* const module = load(folder + "/subject.so", RTLD_LOCAL);
  auto* const subject = reinterpret_cast<Subject*>(::dlsym(module, "lab_subject"));
  require(subject != nullptr, ErrorCode::Io, "load", "the lab's module has no lab_subject");
  for (const json& inputs : cases) {
    results.push_back(run_case(subject, inputs));
    if (!results.back().contains("answer")) break;
  }
  return results;
}

int run(const std::string& folder) {
  const json cases = json::parse(lockstep::read_text_file(folder + "/inputs.json", "lab_host"));
  std::FILE* const out = ::fdopen(::dup(STDOUT_FILENO), "w");
  require(out != nullptr, ErrorCode::Io, "lab_host", "cannot keep standard output");
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  json report;
  try {
    report["cases"] = run_cases(folder, cases);
  } catch (const lockstep::Error& problem) {
    report["problem"] = problem.message();
  }
  fmt::print(out, "{}\n", report.dump(-1, ' ', true, json::error_handler_t::replace));
  std::fflush(nullptr);  // also what the submission printed
  ::_exit(0);            // without the submission's destructors
}

}  // namespace

int main(int argc, char** argv) {
  try {
    require(argc == 2, ErrorCode::Usage, "lab_host", "expected a folder");
    return run(argv[1]);
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "lab_host: {}\n", error.what());
    return lockstep::exit_code(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "lab_host: {}\n", error.what());
    return 1;
  }
}
