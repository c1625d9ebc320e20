// Words that the program does not take: one line that says which, and what is allowed; exit code 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

// Plain text, so that the compiler has nothing to run: words split at spaces, up to four phrases.
struct Mistake {
  const char* name;  // of the test
  const char* arguments;
  std::array<const char*, 4> phrases;
};

void PrintTo(const Mistake& mistake, std::ostream* stream) {
  *stream << mistake.name;
}

class UsageMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(UsageMistake, IsNamedInOneLineAndExitsWithTwo) {
  std::vector<std::string> phrases;
  for (const char* phrase : GetParam().phrases) {
    if (phrase) phrases.emplace_back(phrase);
  }
  expect_rejected(run_lockstep(words(GetParam().arguments)), 2, phrases);
}

std::string name_of(const ::testing::TestParamInfo<Mistake>& mistake) {
  return mistake.param.name;
}

constexpr Mistake kCommandsMistakes[] = {
    {"NoCommand",
     "",
     {"a command is missing",
      "train, compare, explain, doctor, report, plan, predict, calibrate, bench, learn, grade, "
      "devices, env, check-gradients, with-devices, run"}},
    {"UnknownCommand",
     "trian",
     {"unknown command 'trian'",
      "train, compare, explain, doctor, report, plan, predict, calibrate, bench"}},
    {"NoBench", "bench", {"a command is missing", "step, all-reduce"}},
    {"UnknownBench", "bench gemm", {"unknown command 'gemm'", "step, all-reduce"}},
    {"UnknownFlag", "train --learning-rate 1", {"--learning-rate", "--help"}},
    {"StrayWord", "train digits", {"digits", "--help"}},
    {"SaveInCompare", "compare --save x", {"--save"}},
    {"StrayWords", "train one two", {"unexpected arguments 'one two'"}},
    {"MissingValue", "train --lr", {"--lr"}},
    {"MisspeltCommand", "tarin", {"did you mean 'train'?"}},
    {"MisspeltFlag", "train --devces=4", {"unknown flag '--devces'; did you mean '--devices'?"}},
    {"MisspeltValue", "train --plan rign", {"'rign' is none of", "did you mean 'ring'?"}},
    {"MistakeBesideHelp", "train --devces --help", {"unknown flag '--devces'"}},
    {"EmptyValueAfterEquals", "train --init=", {"[--init] the value is empty"}},
};
INSTANTIATE_TEST_SUITE_P(Commands, UsageMistake, ::testing::ValuesIn(kCommandsMistakes), name_of);

constexpr Mistake kWorkMistakes[] = {
    {"UnknownModel",
     "train --model resnet",
     {"'resnet'", "mlp:IN-HIDDEN-...-OUT[:relu|gelu|tanh]"}},
    {"UnknownActivation", "train --model mlp:64-8-10:swish", {"'swish'", "relu|gelu|tanh"}},
    {"MisspeltModel", "train --model mpl:64-8-10", {"'mpl:64-8-10'", "did you mean 'mlp:'?"}},
    {"MisspeltActivation", "train --model mlp:64-8-10:rleu", {"did you mean 'relu'?"}},
    {"ModelWithoutOutput", "train --model mlp:64", {"input and an output size"}},
    {"ModelOfOtherSizes",
     "train --model mlp:784-10",
     {"784 inputs", "digits has 64 features and 10 classes", "mlp:64-...-10"}},
    {"ImagesForRows",
     "train --model lenet --dataset synthetic:100x20x3",
     {"'lenet' takes images, but synthetic has rows of 20 features; use mlp:20-...-3"}},
    {"PoolLargerThanItsImage",
     "train --model cnn:4c3-p2-p2-p4-10",
     {"does not fit the images of digits, 8 x 8", "can't be greater than the padded input (2 x 2"}},
    {"SyncWithoutBatchNorm",
     "train --model lenet --sync-batch-norm",
     {"[--sync-batch-norm]", "models with batch norm"}},
    {"AugmentedRowsOfFeatures",
     "train --augment crop,flip",
     {"[--augment] crops and flips images, which 'mlp:64-256-10' does not take"}},
    {"AugmentedRowsForImages",
     "train --augment flip --model lenet --dataset synthetic:100x20x3",
     {"'lenet' takes images, but synthetic has rows of 20 features"}},
    {"UnknownAugmentation",
     "train --model lenet --augment crop,flop",
     {"--augment", "did you mean 'crop,flip'?"}},
    {"BitwiseBatchNorm", "train --model resnet18:4 --bitwise", {"[--bitwise]", "batch norm"}},
    {"ModelTooWide", "train --model mlp:64-10000000000-10", {"[--model]", "GiB of memory"}},
    {"ModelBeyondIntegers",
     "train --model mlp:64-18446744073709551615-10",
     {"[--model]", "GiB of memory"}},
    {"UnknownDataset",
     "train --dataset imagenet",
     {"'imagenet'", "digits, mnist, fashion-mnist, cifar10 or synthetic:ROWSxFEATURESxCLASSES"}},
    {"MisspeltDataset", "train --dataset fashion_mnist", {"did you mean 'fashion-mnist'?"}},
    {"MisspeltSynthetic", "train --dataset sythetic:9x4x2", {"did you mean 'synthetic:'?"}},
    {"SyntheticTooLarge", "train --dataset synthetic:99999999999x99999999999x10", {"memory"}},
    {"BatchZero", "train --batch 0", {"[--batch] must be at least 1, found 0"}},
    {"BatchNegative", "train --batch -5", {"[--batch]", "found -5"}},
    {"BatchTooLarge", "train --batch 99999999999999999999", {"--batch"}},
    {"BatchNoNumber", "train --batch many", {"--batch", "many"}},
    {"PerDeviceBatchZero",
     "train --per-device-batch 0",
     {"[--per-device-batch] must be at least 1"}},
    {"AccumulateZero", "train --accumulate 0", {"[--accumulate] must be at least 1"}},
    {"AccumulateDoesNotDivide",
     "train --batch 64 --accumulate 3",
     {"[--accumulate] 3 micro-batches", "a batch of 64 rows"}},
    {"AccumulatePredicted",
     "compare --accumulate 4 --predict dgx-a100",
     {"[--predict]", "--accumulate"}},
    {"AccumulateBitwise", "train --accumulate 4 --bitwise", {"[--accumulate]", "--bitwise"}},
    {"AccumulateBatchNorm",
     "train --accumulate 4 --model resnet18:4",
     {"[--accumulate]", "batch norm"}},
    {"EpochsZero", "train --epochs 0", {"[--epochs] must be at least 1"}},
    {"StepsZero", "train --steps 0", {"[--steps] must be at least 1"}},
    {"StepsTooLarge", "train --steps 99999999999", {"--steps"}},
    {"SeedNegative", "train --seed -1", {"--seed", "'-1'"}},
    {"SeedTooLarge", "train --seed 18446744073709551616", {"--seed", "2^64 - 1"}},
    {"UnknownSampler", "train --sampler random", {"--sampler", "exact", "torch"}},
    {"UnknownDtype", "train --dtype float16", {"--dtype", "float32", "float64"}},
};
INSTANTIATE_TEST_SUITE_P(Work, UsageMistake, ::testing::ValuesIn(kWorkMistakes), name_of);

constexpr Mistake kOptimizerMistakes[] = {
    {"LrNan", "train --lr nan", {"[--lr] must be a finite number", "nan"}},
    {"LrInfinite", "train --lr inf", {"[--lr] must be a finite number", "inf"}},
    {"LrBeyondDouble", "train --lr 1e999", {"--lr"}},
    {"LrNegative", "train --lr -0.1", {"[--lr]", "found -0.1"}},
    {"MomentumNegative", "train --momentum -1", {"[--momentum]", "found -1"}},
    {"WeightDecayNan", "train --weight-decay nan", {"[--weight-decay]"}},
    {"ClipNormZero", "train --clip-norm 0", {"[--clip-norm]", "above 0"}},
    {"NesterovWithoutMomentum",
     "train --nesterov --momentum 0",
     {"[--nesterov] needs a --momentum above 0"}},
    {"AdamwMomentum",
     "train --optimizer adamw --momentum 0.9",
     {"adamw has no momentum", "--optimizer sgd"}},
    {"UnknownOptimizer", "train --optimizer lion", {"--optimizer", "sgd", "adamw"}},
    {"UnknownSchedule",
     "train --schedule linear",
     {"'linear'", "constant, step:SIZE[:GAMMA] and cosine[:LAST]"}},
    {"CosineToMore", "train --schedule cosine:1.5", {"'cosine:1.5'", "a part of --lr"}},
    {"WarmupNegative", "train --warmup -1", {"[--warmup]", "found -1"}},
};
INSTANTIATE_TEST_SUITE_P(Optimizer, UsageMistake, ::testing::ValuesIn(kOptimizerMistakes), name_of);

constexpr Mistake kDevicesMistakes[] = {
    {"UnknownDevice", "train --device tpu", {"tpu", "auto", "cpu", "cuda"}},
    {"DevicesZero", "train --devices 0", {"[--devices] must be at least 1"}},
    {"TooManyDevices",
     "train --devices 65 --parallel dp",
     {"[--devices] there are 64 cpu devices, asked for 65"}},
    {"DevicesWithoutParallel",
     "train --devices 2",
     {"2 devices", "--parallel dp or --parallel ddp"}},
    {"DuplicateIds",
     "train --device-ids 0,3,0 --parallel dp",
     {"[--device-ids] 0 appears twice in '0,3,0'"}},
    {"IdThatDoesNotExist",
     "train --device-ids 0,64 --parallel dp",
     {"cpu:64 does not exist", "cpu:0 to cpu:63"}},
    {"IdNegative", "train --device-ids 0,-1 --parallel dp", {"[--device-ids]", "'-1'"}},
    {"IdNoNumber", "train --device-ids a --parallel dp", {"[--device-ids]", "'a'"}},
    {"ThreadsZero", "train --threads-per-device 0", {"[--threads-per-device]"}},
    {"ThreadsTooMany", "train --threads-per-device 9999", {"[--threads-per-device] at most 1024"}},
    {"VirtualGpus", "train --virtual-devices cuda:0*4", {"[--virtual-devices]"}},
    {"Ranks", "train --ranks fibers", {"--ranks", "threads", "processes"}},
    {"Nccl", "train --comm nccl --ranks threads", {"[--comm] nccl", "--comm own"}},
    {"Tcp", "train --transport tcp", {"[--transport]", "auto or thread", "--ranks processes"}},
    {"LinkWithoutBandwidth",
     "train --parallel ddp --devices 2 --link 50us",
     {"[--link] expected LATENCY,BANDWIDTH such as 50us,1GB/s, found '50us'"}},
    {"LinkOfOneDevice",
     "train --link 50us,1GB/s",
     {"[--link] has no effect here", "--parallel ddp"}},
    {"LinkOfDataParallel",
     "train --parallel dp --devices 2 --link 50us,1GB/s",
     {"[--link] has no effect here", "--parallel ddp"}},
    {"UnknownPlan",
     "train --plan star --devices 2 --parallel ddp",
     {"'star'", "ring, tree, halving-doubling, one-shot, two-shot, reduce-broadcast"}},
    {"TimeoutZero", "train --parallel ddp --comm-timeout 0", {"[--comm-timeout]", "above 0"}},
    {"BucketZero", "train --parallel ddp --bucket-mib 0", {"[--bucket-mib]"}},
};
INSTANTIATE_TEST_SUITE_P(Devices, UsageMistake, ::testing::ValuesIn(kDevicesMistakes), name_of);

constexpr Mistake kTogetherMistakes[] = {
    {"TwoBatches", "train --batch 8 --per-device-batch 8", {"--batch excludes --per-device-batch"}},
    {"EpochsAndSteps", "train --epochs 1 --steps 3", {"--epochs excludes --steps"}},
    {"CountAndIds",
     "train --devices 2 --device-ids 0,1 --parallel dp",
     {"--devices excludes --device-ids"}},
    {"BitwiseOnThree",
     "train --bitwise --devices 3 --parallel dp",
     {"[--bitwise] works with 1, 2, 4 or 8 devices, found 3"}},
    {"BitwiseOnThreeInCompare",
     "compare --bitwise --devices 1,3",
     {"[--bitwise] works with 1, 2, 4 or 8 devices, found 3"}},
    {"BitwiseWithPlan",
     "train --bitwise --devices 2 --parallel ddp --plan ring",
     {"[--bitwise]", "leave out --plan"}},
    {"BitwiseWithThreads",
     "train --bitwise --threads-per-device 2",
     {"[--bitwise] needs one thread per device"}},
    {"BitwiseWithTorchSampler",
     "train --bitwise --sampler torch",
     {"[--bitwise] needs --sampler exact"}},
    {"TorchSamplerUneven",
     "train --sampler torch --devices 3 --parallel ddp",
     {"64 rows cannot be shared evenly by 3 ranks", "--sampler exact"}},
};
INSTANTIATE_TEST_SUITE_P(Together, UsageMistake, ::testing::ValuesIn(kTogetherMistakes), name_of);

constexpr Mistake kCompareAndBenchMistakes[] = {
    {"UnknownMode", "compare --modes dp,mpi", {"'mpi'", "dp, ddp or dp,ddp"}},
    {"MisspeltMode", "compare --modes dp,dddp", {"'dddp'", "did you mean 'ddp'?"}},
    {"ModesTrailingComma", "compare --modes dp,", {"[--modes] unknown mode ''"}},
    {"CountZero", "compare --devices 0", {"[--devices]", "found 0"}},
    {"CountNegative", "compare --devices -1", {"[--devices]", "'-1'"}},
    {"CountMissing", "compare --devices 1,,2", {"[--devices]", "''"}},
    {"CountTooLarge", "compare --devices 1,65", {"64 cpu devices, asked for 65"}},
    {"MisspeltBy", "devices --free 1 --by utilisation", {"did you mean 'utilization'?"}},
    {"BenchModel", "bench step --model foo", {"'foo'", "resnet18[:WIDTH]"}},
    {"BenchBatchZero", "bench step --batch 64,0", {"[--batch]", "found 0"}},
    {"BenchBatchNegative", "bench step --batch -1", {"[--batch]", "'-1'"}},
    {"BenchBatchTooLarge", "bench step --batch 999999999999999", {"[--batch]", "GiB of memory"}},
    {"BenchSecondsNan", "bench step --seconds nan", {"[--seconds]", "nan"}},
    {"BenchThreadsZero",
     "bench step --threads-per-device 0",
     {"[--threads-per-device]", "found 0"}},
    {"BytesZero", "bench all-reduce -b 0", {"4 <= -b <= -e, found -b 0"}},
    {"BytesNegative", "bench all-reduce -b -1", {"[-b]", "'-1'", "16K"}},
    {"BytesReversed", "bench all-reduce -b 1M -e 1K", {"4 <= -b <= -e"}},
    {"BytesBeyondIntegers", "bench all-reduce -e 99999999999999999999", {"[-e]"}},
    {"BytesBeyondMemory", "bench all-reduce -e 9999T", {"[-e]", "GiB of memory"}},
    {"FactorOne", "bench all-reduce -f 1", {"[-f] must be at least 2"}},
    {"StepAndFactor", "bench all-reduce -f 2 -i 1K", {"--stepbytes", "--stepfactor"}},
    {"StepZero", "bench all-reduce -i 0", {"[-i] expected at least 4 bytes"}},
    {"StepTooSmall", "bench all-reduce -e 1G -i 4", {"[-i] expected", "at most 10000 sizes"}},
    {"GpusAndDevices", "bench all-reduce -g 2 --devices 2", {"--ngpus", "--devices"}},
    {"PrefixOfNothing", "train --strip-prefix", {"--strip-prefix", "--init"}},
    {"IterationsZero", "bench all-reduce -n 0", {"--iters", "0"}},
    {"RanksZero", "bench all-reduce --devices 0", {"--devices", "1 to 64"}},
    {"LinkWithoutDdp",
     "compare --modes dp --link 50us,1GB/s",
     {"[--link] has no effect here", "--modes ddp"}},
    {"BenchLink", "bench all-reduce --link fast,1GB/s", {"[--link]", "'fast' is no latency"}},
    {"BenchPlan", "bench all-reduce --plan star", {"'star'", "ring"}},
    {"PlanHosts", "plan all-reduce --ranks 4 --hosts 3", {"[--hosts] must divide the ranks"}},
    {"PlanBuckets", "plan buckets --bucket-mib nan", {"[--bucket-mib] must be MiB between 0"}},
    {"BenchTimeout", "bench all-reduce --comm-timeout nan", {"[--comm-timeout]"}},
};
INSTANTIATE_TEST_SUITE_P(CompareAndBench, UsageMistake,
                         ::testing::ValuesIn(kCompareAndBenchMistakes), name_of);

TEST(CommandLine, AnEmptyValueIsAMistakeAndNotADefault) {
  expect_rejected(run_lockstep({"train", "--batch", ""}), 2, {"[--batch] the value is empty"});
}

TEST(CommandLine, HelpNamesEveryCommandAndExitsWithZero) {
  const Outcome help = run_lockstep({"--help"});
  expect_success(help);
  for (const char* command : {"train", "compare", "bench", "devices", "env", "grade"}) {
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
