# Copies SOURCE to OUTPUT with the text in FOLDER/replace.txt replaced by that in FOLDER/with.txt.
include(${CMAKE_CURRENT_LIST_DIR}/../support/replace_once.cmake)
file(READ ${SOURCE} text)
file(READ ${FOLDER}/replace.txt replaced)
file(READ ${FOLDER}/with.txt with)
replace_once(text "${replaced}" "${with}" ${SOURCE})
file(WRITE ${OUTPUT} "${text}")
