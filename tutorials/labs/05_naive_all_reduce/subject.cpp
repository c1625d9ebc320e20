#include "tutorials/labs/host/subject.h"

#include "naive_all_reduce.h"
#include "tutorials/labs/host/group.h"

extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  answer = lab::run_group(inputs, lab::naive_all_reduce);
}
