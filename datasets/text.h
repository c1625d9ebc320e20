// Texts as tokens: characters, or the output of a tokenizer. The last tenth of a text is for
// validation, as in nanoGPT.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "datasets/dataset.h"
#include "datasets/tokenizer.h"

namespace lockstep::datasets {

// The number of tokens of GPT-2's byte-pair encoding, which writes token files.
inline constexpr std::size_t kGpt2Vocabulary = 50257;

// About 120 kB of Shakespeare, part of the program: a text that needs no download.
// Source: the first lines (Coriolanus) of Tiny Shakespeare, A. Karpathy, 2015,
//         https://github.com/karpathy/char-rnn; the text is in the public domain.
extern const std::string_view kEmbeddedText;

// Takes characters of UTF-8 text as tokens; the vocabulary is the text's characters in the order of
// their code points. window: tokens in a row.
// Throws Error{Io} that names `name` for bytes that are not UTF-8, and for a text that is shorter
// than a window.
Dataset characters_of(std::string_view text, const std::string& name, std::size_t window);

// The text in the tokenizer's tokens. Throws as the tokenizer and characters_of() do.
Dataset tokens_of(std::string_view text, const Tokenizer& tokenizer, const std::string& name,
                  std::size_t window);

// The same for tokens that a tokenizer of so many made.
Dataset windows_of(Tokens tokens, std::size_t vocabulary, const std::string& name,
                   std::size_t window);

// The text without UTF-8's byte-order mark at its head. Throws Error{Io} that names UTF-16 or
// UTF-32, and says how to convert it.
std::string_view without_mark(std::string_view text, const std::string& name);

// Reads a file of tokens, uint16 each: plain as nanoGPT's, or after a header as llm.c's.
// Throws Error{Io} that names the file if it cannot be read, does not match its header, has a token
// outside GPT-2's vocabulary (with its offset), has fewer tokens than a window, or seems to be
// something else: tokens of one, four or eight bytes, text, or a known format. The error then says
// how to convert it.
Dataset read_tokens(const std::filesystem::path& path, std::size_t window);

}  // namespace lockstep::datasets
