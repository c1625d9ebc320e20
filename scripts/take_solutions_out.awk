# Prints a lab's source as students get it: in place of what stands between "// SOLUTION begin: TEXT" and
# "// SOLUTION end" it has a blank that says TEXT. Comment lines that follow the first one belong to the text.
# Exit code 1: there is no solution, or one that begins does not end.
/\/\/ SOLUTION begin: / {
  if (inside) { bad = 1; exit }
  inside = 1
  text = $0
  sub(/.*\/\/ SOLUTION begin: /, "", text)
  indent = $0
  sub(/\/\/ SOLUTION begin: .*/, "", indent)
  in_text = 1
  next
}
inside && in_text && /^ *\/\/ / && !/SOLUTION/ {
  line = $0
  sub(/^ *\/\/ */, "", line)
  text = text " " line
  next
}
{ in_text = 0 }
/\/\/ SOLUTION end/ {
  if (!inside) { bad = 1; exit }
  inside = 0
  count++
  print indent "// YOUR CODE HERE, in place of the next statement."
  print indent "throw NotDone("
  print indent "    \"" text "\");"
  next
}
!inside { print }
END { if (bad || inside || count == 0) exit 1 }
