// 29: What does attention compute, and must it store a score for every pair of tokens?
//
// Each token asks all tokens before it how well they match, and takes a weighted mean of what they
// offer. Every pair of tokens has a score, so twice the tokens make four times the scores. But a
// softmax can be computed block by block if its sum is corrected on the way, and then only one
// block's scores are in memory.
//
// You will see: eight characters with a query, a key and a value each; the scores of all pairs, the
// mask, the softmax of each row, and the weighted sums of values; the last row again in blocks of
// keys, whose running maximum and sum are corrected on the way; the same from the engine's
// attention(); and the memory of both ways.
//
// Run:  29_attend_characters [--text to_be_or] [--block 2] [--device auto|cpu|cuda] [--fast]
//
// Expected output with --fast: tutorials/expected/29.txt

#include <lockstep.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/autograd/ops/sequences.h"
#include "tutorials/common.h"

namespace {

using namespace lockstep;

std::string text = "to_be_or";  // --text
int block_size = 2;             // --block: keys

using Pair = std::array<double, 2>;  // a head of size 2

// In a GPT three linear layers make these from each token's vector. Here they are written by hand:
// a vowel looks for consonants, a consonant for vowels, and later characters have longer keys.
struct Head {
  std::vector<Pair> queries, keys, values;
};

Head make_head() {
  Head head;
  fmt::print("      query looks for     key: what it is        value\n");
  fmt::print("      vowel  consonant    vowel  consonant   position  letter\n");
  for (std::size_t t = 0; t < text.size(); ++t) {
    const double vowel = std::string_view("aeiou").find(text[t]) != std::string_view::npos ? 1 : 0;
    const double letter = std::isalpha(static_cast<unsigned char>(text[t])) != 0 ? 1 : 0;
    const double length = 0.5 + 0.25 * static_cast<double>(t);
    const Pair q{2 * (letter - vowel), 2 * vowel};
    const Pair k{length * vowel, length * (letter - vowel)};
    const Pair v{static_cast<double>(t), letter};
    fmt::print("{} {:8.2f} {:10.2f} {:8.2f} {:10.2f} {:10.0f} {:7.0f}\n", text[t], q[0], q[1], k[0],
               k[1], v[0], v[1]);
    head.queries.push_back(q);
    head.keys.push_back(k);
    head.values.push_back(v);
  }
  return head;
}

double score(const Head& head, std::size_t query, std::size_t key) {
  const Pair &q = head.queries[query], &k = head.keys[key];
  return (q[0] * k[0] + q[1] * k[1]) / std::sqrt(2.0);
}

// A character's row, with points for what it may not see.
std::string line_of(std::size_t query, const std::vector<double>& row) {
  std::string line(1, text[query]);
  for (const double x : row) line += fmt::format("{:6.2f}", x);
  for (std::size_t t = row.size(); t < text.size(); ++t) line += "     .";
  return line;
}

// With all scores in memory.
std::vector<Pair> attend(const Head& head) {
  std::vector<std::vector<double>> rows(text.size());
  std::string characters = " ";
  for (const char c : text) characters += fmt::format("{:>6}", c);
  fmt::print("score = query * key / sqrt(2), for each character and those before it\n{}\n",
             characters);
  for (std::size_t t = 0; t < text.size(); ++t) {
    for (std::size_t key = 0; key <= t; ++key) rows[t].push_back(score(head, t, key));
    fmt::print("{}\n", line_of(t, rows[t]));
  }
  fmt::print("weights = exp(score) / their sum; result = sum of weight * value\n");
  fmt::print("{}   position  letter\n", characters);
  std::vector<Pair> results(text.size());
  for (std::size_t t = 0; t < text.size(); ++t) {
    double sum = 0;
    const double largest = *std::ranges::max_element(rows[t]);  // without it exp() may overflow
    for (double& x : rows[t]) sum += x = std::exp(x - largest);
    for (double& x : rows[t]) x /= sum;
    for (std::size_t key = 0; key <= t; ++key) {
      for (int i = 0; i < 2; ++i) results[t][i] += rows[t][key] * head.values[key][i];
    }
    fmt::print("{} {:10.2f} {:7.2f}\n", line_of(t, rows[t]), results[t][0], results[t][1]);
  }
  return results;
}

// A row in blocks of keys. Known so far are the largest score, and relative to it the sum of the
// weights and the sum of weight * value. A larger score corrects both sums.
Pair attend_in_blocks(const Head& head, std::size_t query, bool is_shown) {
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;
  Pair result{};
  const auto block = static_cast<std::size_t>(block_size);
  for (std::size_t first = 0; first <= query; first += block) {
    const std::size_t end = std::min(first + block, query + 1);
    const double before = largest;
    std::string scores;
    for (std::size_t key = first; key < end; ++key) {
      largest = std::max(largest, score(head, query, key));
      scores += fmt::format(" {:.2f}", score(head, query, key));
    }
    const double correction = std::exp(before - largest);  // exp(-inf) = 0 in the first block
    sum *= correction;
    for (double& x : result) x *= correction;
    for (std::size_t key = first; key < end; ++key) {
      const double weight = std::exp(score(head, query, key) - largest);
      sum += weight;
      for (int i = 0; i < 2; ++i) result[i] += weight * head.values[key][i];
    }
    if (is_shown) {
      fmt::print("keys {}-{}  {:<14} {:7.2f} {:10.2f} {:8.2f}\n", first, end - 1, scores, largest,
                 correction, sum);
    }
  }
  for (double& x : result) x /= sum;
  return result;
}

// Lists of pairs side by side: [1, characters, 2 * lists], as attention() takes them.
Tensor tensor_of(const std::vector<std::vector<Pair>>& lists, Device device) {
  std::vector<float> numbers;
  for (std::size_t t = 0; t < text.size(); ++t) {
    for (const auto& list : lists) numbers.insert(numbers.end(), list[t].begin(), list[t].end());
  }
  return Tensor::from(numbers, {1, text.size(), 2 * lists.size()}, device);
}

// Most memory in use during forward and backward of a head of size 64.
double peak_mib(Variable (*op)(const Variable&, std::size_t), std::size_t length, Device device) {
  Rng rng(0);
  const Variable qkv(Tensor::normal({1, length, 3 * 64}, 0, 1, rng, DType::float32, device),
                     RequiresGrad::yes);
  runtime::MemoryPool& memory = runtime::logical_device(device).memory();
  memory.reset_peak();
  const std::size_t before = memory.statistics().current_bytes;
  sum(op(qkv, /*heads=*/1)).backward();
  tutorial::synchronize(device);
  return static_cast<double>(memory.statistics().peak_bytes - before) / (1 << 20);
}

void run(const tutorial::Options& options) {
  require(!text.empty() && text.size() <= 12, ErrorCode::Usage, "--text",
          "expected 1 to 12 characters, found {}", text.size());
  const Device device = options.device();
  tutorial::step(1, "queries, keys and values");
  const Head head = make_head();
  tutorial::step(2, "scores, weights, results");
  const std::vector<Pair> whole = attend(head);

  tutorial::step(3, "the last row in blocks");
  fmt::print("           scores        largest rescale by      sum\n");
  std::vector<Pair> in_blocks;
  for (std::size_t t = 0; t < text.size(); ++t) {
    in_blocks.push_back(attend_in_blocks(head, t, /*is_shown=*/t + 1 == text.size()));
  }
  tutorial::check_close(fmt::format("blocks of {} keys against whole rows", block_size),
                        tensor_of({in_blocks}, device), tensor_of({whole}, device), 1e-5);
  const Variable qkv(tensor_of({head.queries, head.keys, head.values}, device));
  tutorial::check_close("attention() against whole rows", attention(qkv, /*heads=*/1).value(),
                        tensor_of({whole}, device), 1e-5);

  tutorial::step(4, "memory of forward and backward");
  fmt::print("tokens   all scores   in blocks\n");
  std::vector<Pair> mib;
  for (const int length : {256, 512, 1024}) {
    mib.push_back({peak_mib(plain_attention, length, device), peak_mib(attention, length, device)});
    fmt::print("{:6} {:8.1f} MiB {:7.1f} MiB\n", length, mib.back()[0], mib.back()[1]);
  }
  tutorial::say(
      "GPT-2's 12 layers of 12 heads would keep 4.5 GiB of weights for 8 texts of 1024 tokens. In "
      "blocks they keep one number per row, 4.5 MiB, from which backward recomputes the weights.");
  tutorial::check("twice the tokens: scores take more than three times the memory, blocks twice",
                  mib[2][0] > 3 * mib[1][0] && mib[2][1] < 2.5 * mib[1][1]);
  tutorial::answer(
      fmt::format(
          "Attention gives each token a mean of the values up to its own, weighted by the softmax "
          "of query * key. Blocks with a running maximum and sum give the same result, and 1024 "
          "tokens take {:.1f} MiB instead of {:.1f}.",
          mib[2][1], mib[2][0]),
      {{"--text banana", "Which letters does the last a weigh most?"},
       {"--block 8", "One block holds the whole row: nothing is rescaled."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_text("--text", text, "1 to 12 characters");
    flags.add_number("--block", block_size, 1, 12, "keys of a block");
  };
  constexpr const char* kQuestion =
      "What does attention compute, and must it store a score for every pair of tokens?";
  return run_main(argc, argv, kQuestion, run, {.add_flags = add_flags});
}
