# Compares what a program printed with what it is expected to print, or writes what is expected.
#
#   awk -f expected.awk EXPECTED PRINTED           exit 1 and a line for each word that is missing or too many
#   awk -v mark=1 -f expected.awk RUN RUN...       prints the first RUN; in it "~" marks each number that may vary: those
#                                                  that differ between the runs, or have a point, an exponent, or a unit
#                                                  of time or %
#
# Words are compared, step by step ("── Step"), whatever their order: ranks print when they like, and where a line
# ends follows from the width of its numbers. In EXPECTED a "~" before a word stands for any word with a digit, and a
# line that begins with "? " may be missing. Units of time and size are left out, since a number may come with another
# one; so are rows of pictures ("gpu 0 |ff"), the device line, and notes, which say what the machine lacks. A check of
# times that was not judged is as good as one that holds.
function is_unit(word) { return word ~ /^(ns|us|ms|s|B|KB|MB|GB|KiB|MiB|GiB|MB\/s|GB\/s)$/ }
function bare(word) {
  gsub(/^[("'`]+/, "", word)
  gsub(/[)"'`.,;:]+$/, "", word)
  return word
}
function take_words(file, line, _words, _n, _i, _word, _may_miss) {
  if (line ~ /^── Step/) ++section[file]
  if (line ~ /^(gpu [0-9]+)? *\|/) return
  if (line ~ /^ *(\[[0-9]+\] )?(note|using device):/) { skip = 1; return }
  if (skip && line ~ /^      /) return
  skip = 0
  sub(/\.\.\. not judged.*/, "... ok", line)
  gsub(/[^ ]*\/bin\//, "", line)  # the program's folder
  _may_miss = sub(/^[?] /, "", line)
  _n = split(line, _words, /[ \t]+/)
  for (_i = 1; _i <= _n; ++_i) {
    _word = bare(_words[_i])
    if (_word == "" || is_unit(_word)) continue
    if (_word ~ /^~/) _word = "~"
    if (_may_miss) { ++spare[section[file], _word]; continue }
    ++count[file, section[file], _word]
    seen[section[file], _word] = 1
  }
}
function varies(step, word, _file) {
  if (word !~ /[0-9]/) return 0
  if (word ~ /[0-9]\.[0-9]/ || word ~ /[0-9]e[-+]?[0-9]/) return 1
  for (_file = 2; _file <= num_files; ++_file) {
    if (count[_file, step, word] != count[1, step, word]) return 1
  }
  return 0
}
# A check is taken as a whole: it goes on in lines with seven spaces.
function take_check() {
  if (check != "") take_words(num_files, check)
  check = ""
}
FNR == 1 { take_check(); ++num_files; section[num_files] = 0; skip = 0 }
num_files == 1 { first[++num_lines] = $0 }
check != "" && /^       [^ ]/ { check = check substr($0, 7); next }
{ take_check() }
/^check:/ { check = $0; next }
{ take_words(num_files, $0) }
END {
  take_check()
  if (mark) {
    step = 0
    for (i = 1; i <= num_lines; ++i) {
      line = first[i]
      gsub(/[^ ]*\/bin\//, "", line)
      if (line ~ /^── Step/) ++step
      out = ""
      while (match(line, /[^ \t]+/)) {
        word = substr(line, RSTART, RLENGTH)
        before = substr(line, 1, RSTART - 1)
        line = substr(line, RSTART + RLENGTH)
        is_measured = word ~ /^[0-9]+$/ && line ~ /^ (ns|us|ms|s|%)([ ,.:;)]|$)/
        out = out before (is_measured || varies(step, bare(word)) ? "~" : "") word
      }
      print out line
    }
    exit
  }
  for (key in seen) {
    split(key, part, SUBSEP)
    if (part[2] == "~") { any[part[1]] += count[1, part[1], "~"]; continue }
    surplus = count[2, part[1], part[2]] - count[1, part[1], part[2]]
    if (surplus > 0) surplus = surplus > spare[part[1], part[2]] ? surplus - spare[part[1], part[2]] : 0
    if (surplus < 0) { print "step " part[1] ": not printed: " part[2]; wrong = 1 }
    if (surplus > 0 && part[2] !~ /[0-9]/) { print "step " part[1] ": not expected: " part[2]; wrong = 1 }
    if (surplus > 0 && part[2] ~ /[0-9]/) any[part[1]] -= surplus
  }
  for (step in any) {
    if (any[step] == 0) continue
    print "step " step ": " (any[step] > 0 ? any[step] " numbers too few" : -any[step] " numbers too many")
    wrong = 1
  }
  exit wrong
}
