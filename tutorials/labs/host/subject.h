// The interface between lab_host and each lab's module (NN_name/subject.cpp), which hands one case
// of a check to the submission's functions, and returns their answer.
#pragma once

#include <nlohmann/json.hpp>

// inputs, answer: in the form of the lab's judge.cpp. Throws the submission's exceptions.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer);
