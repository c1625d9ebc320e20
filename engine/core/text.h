// Text for error messages: makes a file's bytes printable, and suggests similar words.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// The first 80 bytes, with "..." if there are more, and '?' for each control character: a damaged
// file's text may be megabytes long, break lines or control a terminal.
std::string shown(std::string_view text);

// Quotes the text as one word of a shell's command line, in single quotes.
std::string shell_quoted(std::string_view text);

// How many letters must be inserted, removed, replaced or swapped with the next to turn b into a.
std::size_t edit_distance(std::string_view a, std::string_view b);

// "; did you mean 'ring'?" for "rng", with the nearest of the words. Empty if none is near: more
// than one letter in three is wrong, and the word doesn't begin any of them.
std::string did_you_mean(std::string_view word, std::span<const std::string> words);

}  // namespace lockstep
