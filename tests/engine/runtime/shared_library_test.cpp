#include "engine/runtime/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

// In every process of this system.
constexpr const char* kMath = "libm.so.6";

TEST(SharedLibrary, AFunctionThatItLacksIsNamed) {
  const SharedLibrary library(
      kMath, {.code = ErrorCode::Comm, .operation = "numbers", .advice = "get a newer one"});
  void (*function)() = std::abort;
  library.find("no_such_function", function);
  EXPECT_EQ(function, nullptr);
  EXPECT_THAT([&] { library.find_required("no_such_function", function); },
              ::testing::Throws<Error>(::testing::AllOf(
                  ::testing::Property(&Error::code, ErrorCode::Comm),
                  ::testing::Property(
                      &Error::what,
                      HasSubstr("[numbers] libm.so.6 has no no_such_function: get a newer one")))));
}

TEST(SharedLibrary, ThatIsMissingSaysWhichAndWhy) {
  const SharedLibrary library("/nowhere/libnothing.so");
  EXPECT_FALSE(library.is_loaded());
  EXPECT_THAT(library.problem(), HasSubstr("/nowhere/libnothing.so: cannot open shared object"));
}

TEST(SharedLibrary, TheEnvironmentMayNameAnother) {
  ::unsetenv("LOCKSTEP_TEST_LIBRARY");
  EXPECT_EQ(library_path("LOCKSTEP_TEST_LIBRARY", "libusual.so"), "libusual.so");
  ::setenv("LOCKSTEP_TEST_LIBRARY", "", 1);
  EXPECT_EQ(library_path("LOCKSTEP_TEST_LIBRARY", "libusual.so"), "libusual.so");
  ::setenv("LOCKSTEP_TEST_LIBRARY", "/opt/libother.so", 1);
  EXPECT_EQ(library_path("LOCKSTEP_TEST_LIBRARY", "libusual.so"), "/opt/libother.so");
  ::unsetenv("LOCKSTEP_TEST_LIBRARY");
}

}  // namespace
}  // namespace lockstep::runtime
