# TUTTI_TEMPLATES_SOURCE: a source with the files of the examples from which `tutti plugin new` makes projects. The tool
# contains them, so that it needs no files beside it.
set(TUTTI_TEMPLATES_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/templates.cpp)
set(TUTTI_TEMPLATES "")
foreach(example algo-chain net-unix_stream proto-whole_slots tuner-fewest_hops)
  string(REGEX MATCH "^[a-z]+" kind ${example})
  string(REGEX REPLACE "^[a-z]+-" "" name ${example})
  foreach(file CMakeLists.txt README.md ${name}.cpp)
    set(path ${PROJECT_SOURCE_DIR}/examples/${example}/${file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} content)
    string(APPEND TUTTI_TEMPLATES
      "    {\"${kind}\", \"${name}\", \"${file}\",\n     R\"tutti_file(${content})tutti_file\"},\n")
  endforeach()
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/templates.in ${TUTTI_TEMPLATES_SOURCE} @ONLY)
