# Compiler settings and the two functions every folder uses: tutti_part() and tutti_test().

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(TUTTI_PLUGIN_BUILD_DIR ${PROJECT_BINARY_DIR}/lib/tutti/plugins)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  # ccache takes sources with a precompiled header only with these two relaxations of its comparison.
  set(ccache_settings CCACHE_SLOPPINESS=pch_defines,time_macros)
  if(CMAKE_BUILD_TYPE STREQUAL "Release") # Objects without the folder of the build, so other clones can have them.
    list(APPEND ccache_settings CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1)
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${ccache_settings} ${CCACHE_PROGRAM})
endif()

# Every target of this build compiles with these; an installed SDK imposes none of them.
add_library(tutti_options INTERFACE)
target_compile_options(tutti_options INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>) # false alarms on std::string (GCC bug 105651)
foreach(sanitizer IN LISTS TUTTI_SANITIZE)
  set(flag -fsanitize=${sanitizer})
  if(sanitizer STREQUAL "undefined") # not in command lines and tests: a third of the time that the compiler takes there
    set(flag $<$<NOT:$<BOOL:$<TARGET_PROPERTY:TUTTI_COMPILES_FAST>>>:${flag}>)
  endif()
  target_compile_options(tutti_options INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:${flag}> $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
  target_link_options(tutti_options INTERFACE -fsanitize=${sanitizer})
endforeach()
if("undefined" IN_LIST TUTTI_SANITIZE)
  # The check of vptrs reads an object through a pipe that it opens. So it reports every object of a process that has no
  # descriptor left. Tests take all descriptors away.
  target_compile_options(tutti_options INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=undefined -fno-sanitize=vptr>)
endif()

# The headers that most sources parse. Every source includes all headers that it uses: clang-tidy parses without
# precompiled headers, and so finds a missing include.
set(TUTTI_COMMON_HEADERS <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <functional> <map> <memory> <mutex>
  <optional> <span> <string> <string_view> <utility> <vector> <fmt/format.h>)

# tutti_precompile(<target> [<header>...]): parses the common headers and the given headers once for all C++ sources of
# the target.
function(tutti_precompile target)
  set(headers ${TUTTI_COMMON_HEADERS} ${ARGN})
  list(TRANSFORM headers REPLACE "^(.+)$" "$<$<COMPILE_LANGUAGE:CXX>:\\1>")
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

# tutti_compile_fast(<target>): optimises less where a release's speed does not depend on the target. Halves the time
# that the compiler takes for command lines and tests. Sanitizers need twice as much time: their builds optimise nothing
# there.
function(tutti_compile_fast target)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>
    $<$<AND:$<BOOL:${TUTTI_SANITIZE}>,$<COMPILE_LANGUAGE:CXX>>:-O0>)
  set_target_properties(${target} PROPERTIES TUTTI_COMPILES_FAST ON)
endfunction()

# tutti_part(<sources>...): adds the sources of one folder of core/ to the core.
function(tutti_part)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(tutti_core PRIVATE ${ARGN})
endfunction()

# tutti_use_cuda_headers(<target> <source>...): these sources of the target include headers of CUDA, and see
# TUTTI_HAS_CUDA. All others compile as in a build without CUDA, so ccache has their objects for both builds.
function(tutti_use_cuda_headers target)
  set(headers)
  foreach(folder IN LISTS CUDAToolkit_INCLUDE_DIRS)
    list(APPEND headers -isystem ${folder})
  endforeach()
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES
    COMPILE_DEFINITIONS TUTTI_HAS_CUDA COMPILE_OPTIONS "${headers}")
endfunction()

# tutti_cuda_part(<source>...): a part of the core with headers of CUDA.
function(tutti_cuda_part)
  tutti_part(${ARGN})
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  tutti_use_cuda_headers(tutti_core ${ARGN})
endfunction()

# tutti_time_limit(<seconds> <test>...): a limit about ten times as long as a release takes on two busy cores, so that
# tests that become slow, or hang, are noticed. Sanitizers and debug builds get as many times more as they take.
function(tutti_time_limit seconds)
  set(times 1)
  if(TUTTI_SANITIZE)
    set(times 10)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(times 5)
  endif()
  math(EXPR limit "${seconds} * ${times}")
  set_tests_properties(${ARGN} PROPERTIES TIMEOUT ${limit})
endfunction()

# tutti_test(<name> SOURCES ... [LIBRARIES ...] [LABELS ...] [TIMEOUT seconds] [OPTIMISED]): one GoogleTest program
# linked with the whole core. It has the label "program", and also runs under AddressSanitizer. Tests with the label
# "concurrent" also run under ThreadSanitizer. Tests with the
# label "cuda" or "ucx" need that library. TIMEOUT: for tutti_time_limit(), if 30 s are too short. OPTIMISED: most
# of the test's time is spent in its sources.
function(tutti_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OPTIMISED" "TIMEOUT" "SOURCES;LIBRARIES;LABELS")
  add_executable(${name} ${arg_SOURCES})
  if(arg_OPTIMISED)
    target_compile_options(${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O2>) # builds with sanitizers compile with -O1
  else()
    tutti_compile_fast(${name})
    target_precompile_headers(${name} REUSE_FROM tutti_test_headers)
  endif()
  target_link_libraries(${name} PRIVATE tutti_core_static GTest::gmock_main ${arg_LIBRARIES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    TUTTI_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TUTTI_BINARY_DIR="${PROJECT_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 30)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "program;${arg_LABELS}")
  tutti_time_limit(${arg_TIMEOUT} ${name})
  if(concurrent IN_LIST arg_LABELS)
    add_dependencies(concurrent_tests ${name})
  endif()
  if("cuda" IN_LIST arg_LABELS OR "ucx" IN_LIST arg_LABELS)
    add_dependencies(extra_tests ${name})
  endif()
endfunction()
