// What each lab's module (NN_name/subject.cpp) offers to lab_host: one case of a check, handed to
// the functions that the submission defines, and what they make of it.
#pragma once

#include <nlohmann/json.hpp>

// inputs, answer: as the lab's judge.cpp draws and reads them. Throws what the submission throws.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer);
