tutti_test(config_test SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/config_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/config_folder.cpp)
tutti_test(config_error_test
  SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/config_error_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/config_folder.cpp)
tutti_test(config_mutation_test
  SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/config_mutation_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/config_folder.cpp)
