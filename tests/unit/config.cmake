foreach(test config_test config_error_test config_mutation_test)
  tutti_test(${test} SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/${test}.cpp ${CMAKE_CURRENT_SOURCE_DIR}/config_folder.cpp)
endforeach()
