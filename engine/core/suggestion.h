// "did you mean": the word that somebody probably wanted to type.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// How many letters must be inserted, removed, replaced or swapped with the next to make a of b.
std::size_t edit_distance(std::string_view a, std::string_view b);

// "; did you mean 'ring'?" for "rng", with the nearest of the words; empty where none is near: more
// than one letter in three is wrong, and the word doesn't begin any of them.
std::string did_you_mean(std::string_view word, std::span<const std::string> words);

}  // namespace lockstep
