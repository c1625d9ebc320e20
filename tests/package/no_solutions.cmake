# expect_no_solutions(ROOT): no file of an installed tree holds a lab's solution or the fix of a bug program. From each
# solution the longest line stands for it, because short ones are everyday code.
set(lab_sources ${CMAKE_CURRENT_LIST_DIR}/../../tutorials/labs)
function(expect_no_solutions root)
  set(lines ${SCRATCH}/solution_lines)
  run_step(sh -ec "
    for source in ${lab_sources}/[0-9]*/*.cpp; do
      awk '/SOLUTION begin/ { inside = 1; longest = \"\"; next }
           /SOLUTION end/ { inside = 0; print longest }
           inside && !/^ *\\/\\// { sub(/^ */, \"\"); if (length > length(longest)) longest = $0 }' \"$source\"
    done | sort -u > ${lines}")
  file(STRINGS ${lines} num_lines)
  list(LENGTH num_lines num_lines)
  if(num_lines LESS 25)
    message(FATAL_ERROR "[package] expected a line of each lab's solutions, found ${num_lines}")
  endif()
  # grep exits with 1 where it finds nothing.
  run_step(sh -ec "
    ! grep -rIlE 'SOLUTION (begin|end)' ${root} || exit 2
    ! grep -rIF -f ${lines} ${root} || exit 2
    ! find ${root} -name secret -o -name 'bug_*fix*' -o -name spoilers | grep . || exit 2
    for source in ${lab_sources}/[0-9]*/*.cpp; do
      grep -q 'SOLUTION begin' \"$source\" || continue
      lab=$(basename $(dirname \"$source\"))
      grep -q 'throw NotDone(' ${root}/share/lockstep/labs/$lab/$(basename \"$source\")
    done")
endfunction()
