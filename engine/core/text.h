// Words for error messages: a file's bytes made printable, and "did you mean".
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// The first 80 bytes, with "..." where there are more, and '?' for each control character: what a
// damaged file holds may be megabytes long, end lines or command a terminal.
std::string shown(std::string_view text);

// As one word of a shell's command line, in single quotes.
std::string shell_quoted(std::string_view text);

// How many letters must be inserted, removed, replaced or swapped with the next to make a of b.
std::size_t edit_distance(std::string_view a, std::string_view b);

// "; did you mean 'ring'?" for "rng", with the nearest of the words; empty where none is near: more
// than one letter in three is wrong, and the word doesn't begin any of them.
std::string did_you_mean(std::string_view word, std::span<const std::string> words);

}  // namespace lockstep
