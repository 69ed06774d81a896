tutti_test(tool_failures_test SOURCES tool_failures_test.cpp ${PROJECT_SOURCE_DIR}/tools/failures.cpp LABELS concurrent)
target_include_directories(tool_failures_test PRIVATE ${PROJECT_SOURCE_DIR})
