// Words that the program does not take: one line that says which, and what is allowed; exit code 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

struct Mistake {
  std::string name;  // of the test
  Arguments arguments;
  std::vector<std::string> phrases;
};

void PrintTo(const Mistake& mistake, std::ostream* stream) {
  *stream << mistake.name;
}

class UsageMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(UsageMistake, IsNamedInOneLineAndExitsWithTwo) {
  expect_rejected(run_lockstep(GetParam().arguments), 2, GetParam().phrases);
}

const auto kName = [](const ::testing::TestParamInfo<Mistake>& info) { return info.param.name; };

INSTANTIATE_TEST_SUITE_P(
    Commands, UsageMistake,
    ::testing::Values(
        Mistake{"NoCommand", {}, {"a command is missing", "train, compare, bench, devices, env"}},
        Mistake{"UnknownCommand", {"trian"}, {"unknown command 'trian'", "train, compare, bench"}},
        Mistake{"NoBench", {"bench"}, {"a command is missing", "step, all-reduce"}},
        Mistake{"UnknownBench", {"bench", "gemm"}, {"unknown command 'gemm'", "step, all-reduce"}},
        Mistake{"UnknownFlag", words("train --learning-rate 1"), {"--learning-rate", "--help"}},
        Mistake{"StrayWord", words("train digits"), {"digits", "--help"}},
        Mistake{"SaveInCompare", words("compare --save x"), {"--save"}},
        Mistake{"MissingValue", words("train --lr"), {"--lr"}},
        Mistake{"EmptyValue", {"train", "--batch", ""}, {"[--batch] the value is empty"}},
        Mistake{"EmptyValueAfterEquals", {"train", "--init="}, {"[--init] the value is empty"}}),
    kName);

INSTANTIATE_TEST_SUITE_P(
    Work, UsageMistake,
    ::testing::Values(
        Mistake{"UnknownModel",
                words("train --model resnet"),
                {"'resnet'", "mlp:IN-HIDDEN-...-OUT[:relu|gelu|tanh]"}},
        Mistake{"UnknownActivation",
                words("train --model mlp:64-8-10:swish"),
                {"'swish'", "relu|gelu|tanh"}},
        Mistake{"ModelWithoutOutput", words("train --model mlp:64"), {"input and an output size"}},
        Mistake{"ModelOfOtherSizes",
                words("train --model mlp:784-10"),
                {"784 inputs", "digits has 64 features and 10 classes", "mlp:64-...-10"}},
        Mistake{"ModelTooWide",
                words("train --model mlp:64-10000000000-10"),
                {"[--model]", "GiB of memory"}},
        Mistake{"ModelBeyondIntegers",
                words("train --model mlp:64-18446744073709551615-10"),
                {"[--model]", "GiB of memory"}},
        Mistake{"UnknownDataset",
                words("train --dataset imagenet"),
                {"'imagenet'", "digits, mnist, fashion-mnist or synthetic:ROWSxFEATURESxCLASSES"}},
        Mistake{"SyntheticTooLarge",
                words("train --dataset synthetic:99999999999x99999999999x10"),
                {"memory"}},
        Mistake{"BatchZero", words("train --batch 0"), {"[--batch] must be at least 1, found 0"}},
        Mistake{"BatchNegative", words("train --batch -5"), {"[--batch]", "found -5"}},
        Mistake{"BatchTooLarge", words("train --batch 99999999999999999999"), {"--batch"}},
        Mistake{"BatchNoNumber", words("train --batch many"), {"--batch", "many"}},
        Mistake{"PerDeviceBatchZero",
                words("train --per-device-batch 0"),
                {"[--per-device-batch] must be at least 1"}},
        Mistake{"EpochsZero", words("train --epochs 0"), {"[--epochs] must be at least 1"}},
        Mistake{"StepsZero", words("train --steps 0"), {"[--steps] must be at least 1"}},
        Mistake{"StepsTooLarge", words("train --steps 99999999999"), {"--steps"}},
        Mistake{"SeedNegative", words("train --seed -1"), {"--seed", "'-1'"}},
        Mistake{"SeedTooLarge", words("train --seed 18446744073709551616"), {"--seed", "2^64 - 1"}},
        Mistake{"UnknownSampler", words("train --sampler random"), {"--sampler", "exact", "torch"}},
        Mistake{"UnknownDtype", words("train --dtype float16"), {"--dtype", "float32", "float64"}}),
    kName);

INSTANTIATE_TEST_SUITE_P(
    Optimizer, UsageMistake,
    ::testing::Values(
        Mistake{"LrNan", words("train --lr nan"), {"[--lr] must be a finite number", "nan"}},
        Mistake{"LrInfinite", words("train --lr inf"), {"[--lr] must be a finite number", "inf"}},
        Mistake{"LrBeyondDouble", words("train --lr 1e999"), {"--lr"}},
        Mistake{"LrNegative", words("train --lr -0.1"), {"[--lr]", "found -0.1"}},
        Mistake{"MomentumNegative", words("train --momentum -1"), {"[--momentum]", "found -1"}},
        Mistake{"WeightDecayNan", words("train --weight-decay nan"), {"[--weight-decay]"}},
        Mistake{"ClipNormZero", words("train --clip-norm 0"), {"[--clip-norm]", "above 0"}},
        Mistake{"NesterovWithoutMomentum",
                words("train --nesterov --momentum 0"),
                {"[--nesterov] needs a --momentum above 0"}},
        Mistake{"AdamwMomentum",
                words("train --optimizer adamw --momentum 0.9"),
                {"adamw has no momentum", "--optimizer sgd"}},
        Mistake{
            "UnknownOptimizer", words("train --optimizer lion"), {"--optimizer", "sgd", "adamw"}},
        Mistake{"UnknownSchedule",
                words("train --schedule linear"),
                {"'linear'", "constant, step:SIZE[:GAMMA] and cosine"}},
        Mistake{"WarmupNegative", words("train --warmup -1"), {"[--warmup]", "found -1"}}),
    kName);

INSTANTIATE_TEST_SUITE_P(
    Devices, UsageMistake,
    ::testing::Values(
        Mistake{"UnknownDevice", words("train --device tpu"), {"tpu", "auto", "cpu", "cuda"}},
        Mistake{"DevicesZero", words("train --devices 0"), {"[--devices] must be at least 1"}},
        Mistake{"TooManyDevices",
                words("train --devices 65 --parallel dp"),
                {"[--devices] there are 64 cpu devices, asked for 65"}},
        Mistake{"DevicesWithoutParallel",
                words("train --devices 2"),
                {"2 devices", "--parallel dp or --parallel ddp"}},
        Mistake{"DuplicateIds",
                words("train --device-ids 0,3,0 --parallel dp"),
                {"[--device-ids] 0 stands twice in '0,3,0'"}},
        Mistake{"IdThatDoesNotExist",
                words("train --device-ids 0,64 --parallel dp"),
                {"cpu:64 does not exist", "cpu:0 to cpu:63"}},
        Mistake{"IdNegative",
                words("train --device-ids 0,-1 --parallel dp"),
                {"[--device-ids]", "'-1'"}},
        Mistake{
            "IdNoNumber", words("train --device-ids a --parallel dp"), {"[--device-ids]", "'a'"}},
        Mistake{"ThreadsZero", words("train --threads-per-device 0"), {"[--threads-per-device]"}},
        Mistake{"ThreadsTooMany",
                words("train --threads-per-device 9999"),
                {"[--threads-per-device] at most 1024"}},
        Mistake{"VirtualGpus", words("train --virtual-devices cuda:0*4"), {"[--virtual-devices]"}},
        Mistake{"Processes", words("train --ranks processes"), {"[--ranks]", "threads"}},
        Mistake{
            "Nccl", words("train --comm nccl"), {"[--comm] 'nccl' is not available", "use own"}},
        Mistake{"Tcp", words("train --transport tcp"), {"[--transport]", "auto or thread"}},
        Mistake{"UnknownPlan",
                words("train --plan star --devices 2 --parallel ddp"),
                {"'star'", "ring, tree, halving-doubling, one-shot, two-shot, reduce-broadcast"}},
        Mistake{"TimeoutZero", words("train --comm-timeout 0"), {"[--comm-timeout]", "above 0"}},
        Mistake{"BucketZero", words("train --bucket-mib 0"), {"[--bucket-mib]"}}),
    kName);

INSTANTIATE_TEST_SUITE_P(
    Together, UsageMistake,
    ::testing::Values(Mistake{"TwoBatches",
                              words("train --batch 8 --per-device-batch 8"),
                              {"--batch excludes --per-device-batch"}},
                      Mistake{"EpochsAndSteps",
                              words("train --epochs 1 --steps 3"),
                              {"--epochs excludes --steps"}},
                      Mistake{"CountAndIds",
                              words("train --devices 2 --device-ids 0,1 --parallel dp"),
                              {"--devices excludes --device-ids"}},
                      Mistake{"BitwiseOnThree",
                              words("train --bitwise --devices 3 --parallel dp"),
                              {"[--bitwise] works with 1, 2, 4 or 8 devices, found 3"}},
                      Mistake{"BitwiseOnThreeInCompare",
                              words("compare --bitwise --devices 1,3"),
                              {"[--bitwise] works with 1, 2, 4 or 8 devices, found 3"}},
                      Mistake{"BitwiseWithPlan",
                              words("train --bitwise --devices 2 --parallel ddp --plan ring"),
                              {"[--bitwise]", "leave out --plan"}},
                      Mistake{"BitwiseWithThreads",
                              words("train --bitwise --threads-per-device 2"),
                              {"[--bitwise] needs one thread per device"}},
                      Mistake{"BitwiseWithTorchSampler",
                              words("train --bitwise --sampler torch"),
                              {"[--bitwise] needs --sampler exact"}},
                      Mistake{"TorchSamplerUneven",
                              words("train --sampler torch --devices 3 --parallel ddp"),
                              {"64 rows cannot be shared evenly by 3 ranks", "--sampler exact"}}),
    kName);

INSTANTIATE_TEST_SUITE_P(
    CompareAndBench, UsageMistake,
    ::testing::Values(
        Mistake{"UnknownMode", words("compare --modes dp,mpi"), {"'mpi'", "dp, ddp or dp,ddp"}},
        Mistake{"ModesTrailingComma", words("compare --modes dp,"), {"[--modes] unknown mode ''"}},
        Mistake{"CountZero", words("compare --devices 0"), {"[--devices]", "found 0"}},
        Mistake{"CountNegative", words("compare --devices -1"), {"[--devices]", "'-1'"}},
        Mistake{"CountMissing", words("compare --devices 1,,2"), {"[--devices]", "''"}},
        Mistake{"CountTooLarge", words("compare --devices 1,65"), {"64 cpu devices, asked for 65"}},
        Mistake{"BenchModel", words("bench step --model foo"), {"'foo'", "mlp:784-256-10"}},
        Mistake{"BenchBatchZero", words("bench step --batch 64,0"), {"[--batch]", "found 0"}},
        Mistake{"BenchBatchNegative", words("bench step --batch -1"), {"[--batch]", "'-1'"}},
        Mistake{"BenchBatchTooLarge",
                words("bench step --batch 999999999999999"),
                {"[--batch]", "GiB of memory"}},
        Mistake{"BenchSecondsNan", words("bench step --seconds nan"), {"[--seconds]", "nan"}},
        Mistake{"BenchThreadsZero",
                words("bench step --threads-per-device 0"),
                {"[--threads-per-device]", "found 0"}},
        Mistake{"BytesZero", words("bench all-reduce -b 0"), {"4 <= -b <= -e, found -b 0"}},
        Mistake{"BytesNegative", words("bench all-reduce -b -1"), {"[-b]", "'-1'", "16K"}},
        Mistake{"BytesReversed", words("bench all-reduce -b 1M -e 1K"), {"4 <= -b <= -e"}},
        Mistake{"BytesBeyondIntegers", words("bench all-reduce -e 99999999999999999999"), {"[-e]"}},
        Mistake{"BytesBeyondMemory", words("bench all-reduce -e 9999T"), {"[-e]", "GiB of memory"}},
        Mistake{"FactorOne", words("bench all-reduce -f 1"), {"[-f] must be at least 2"}},
        Mistake{"IterationsZero", words("bench all-reduce -n 0"), {"--iters", "0"}},
        Mistake{"RanksZero", words("bench all-reduce --devices 0"), {"--devices", "1 to 64"}},
        Mistake{"BenchPlan", words("bench all-reduce --plan star"), {"'star'", "ring"}},
        Mistake{
            "BenchTimeout", words("bench all-reduce --comm-timeout nan"), {"[--comm-timeout]"}}),
    kName);

TEST(CommandLine, HelpNamesEveryCommandAndExitsWithZero) {
  const Outcome help = run_lockstep({"--help"});
  expect_success(help);
  for (const char* command : {"train", "compare", "bench", "devices", "env"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
  }
  expect_success(run_lockstep(words("train --help")));
}

TEST(CommandLine, DevicesSaysWhatThereIsToTrainOn) {
  const Outcome devices = run_lockstep({"devices"});
  expect_success(devices);
  EXPECT_THAT(devices.out, HasSubstr("cpu:0 to cpu:63"));
  EXPECT_THAT(devices.out, HasSubstr("cuda"));
}

TEST(CommandLine, EnvPrintsVersionsAndTheVariablesOfLaunchers) {
  const Outcome env = run_lockstep({"env"});
  expect_success(env);
  for (const char* key : {"version", "build", "os", "cpu", "cores", "memory", "RANK", "WORLD_SIZE",
                          "MASTER_ADDR", "LOCKSTEP_VIRTUAL_DEVICES"}) {
    EXPECT_THAT(env.out, HasSubstr(key));
  }
}

}  // namespace
}  // namespace lockstep::testing
