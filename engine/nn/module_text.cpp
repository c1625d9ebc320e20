// The printed form of a module. Source: torch/nn/modules/module.py, Module.__repr__.
#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "engine/nn/module.h"

namespace lockstep::nn {

namespace {

// Every line but the first moves two spaces to the right.
std::string indented(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

}  // namespace

std::string Module::to_string() const {
  const std::string extra = extra_text();
  if (children_.empty()) return fmt::format("{}({})", type_name(), extra);
  std::string lines;
  if (!extra.empty()) lines += fmt::format("\n  {}", extra);
  for (const auto& [name, child] : children_) {
    lines += fmt::format("\n  ({}): {}", name, indented(child->to_string()));
  }
  return fmt::format("{}({}\n)", type_name(), lines);
}

std::string class_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  const std::string full = text ? text.get() : type.name();
  const std::size_t scope = full.rfind("::", full.find('<'));
  return scope == std::string::npos ? full : full.substr(scope + 2);
}

std::string python_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

}  // namespace lockstep::nn
