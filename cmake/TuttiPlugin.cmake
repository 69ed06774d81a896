# tutti_add_plugin(<kind> <name> VERSION <version> SOURCES <files>...
#                  [LIBRARIES <targets>...] [CUDA_ARCHITECTURES <sm>...])
#
# Builds the plugin tutti-<kind>-<name>.so: kind is algo, proto, net or tuner. One symbol is exported. An ELF note
# describes the file before any of its code runs. Both are checked after linking. Works inside Tutti's tree and,
# through find_package(Tutti), outside it. The target is called tutti-<kind>-<name>.

set(TUTTI_PLUGIN_CMAKE_DIR ${CMAKE_CURRENT_LIST_DIR})

function(tutti_add_plugin kind name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "VERSION" "SOURCES;LIBRARIES;CUDA_ARCHITECTURES")
  set(kinds algo proto net tuner)
  list(FIND kinds "${kind}" kind_index)
  if(kind_index LESS 0)
    message(FATAL_ERROR "tutti_add_plugin: kind '${kind}' is none of: algo, proto, net, tuner")
  endif()
  if(NOT arg_VERSION OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tutti_add_plugin(${kind} ${name}): needs VERSION and SOURCES; "
                        "unexpected: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  string(LENGTH "${name}" name_length)
  string(LENGTH "${arg_VERSION}" version_length)
  if(NOT name MATCHES "^[a-z][a-z0-9_]*$" OR name_length GREATER 31 OR version_length GREATER 31)
    message(FATAL_ERROR "tutti_add_plugin(${kind} ${name}): a name is a-z, 0-9 and _, beginning with a letter; "
                        "name and version have at most 31 characters")
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT "C" IN_LIST languages)
    message(FATAL_ERROR "tutti_add_plugin(${kind} ${name}): the note is a C file; write project(... LANGUAGES C CXX)")
  endif()

  math(EXPR TUTTI_NOTE_KIND "${kind_index} + 1")
  set(TUTTI_NOTE_NAME ${name})
  set(TUTTI_NOTE_VERSION ${arg_VERSION})
  set(TUTTI_NOTE_CUDA_MAJOR 0)
  if(arg_CUDA_ARCHITECTURES)
    find_package(CUDAToolkit REQUIRED)
    set(TUTTI_NOTE_CUDA_MAJOR ${CUDAToolkit_VERSION_MAJOR})
  endif()
  list(JOIN arg_CUDA_ARCHITECTURES " " TUTTI_NOTE_ARCHITECTURES)
  set(note ${CMAKE_CURRENT_BINARY_DIR}/tutti-${kind}-${name}-note.c)
  configure_file(${TUTTI_PLUGIN_CMAKE_DIR}/note.c.in ${note} @ONLY)

  set(target tutti-${kind}-${name})
  add_library(${target} MODULE ${arg_SOURCES} ${note})
  target_link_libraries(${target} PRIVATE Tutti::sdk ${arg_LIBRARIES})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  set_target_properties(${target} PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON LINK_DEPENDS ${TUTTI_PLUGIN_CMAKE_DIR}/plugin.map)
  # The version script also makes unique symbols local, which would pin the image in memory for ever.
  target_link_options(${target} PRIVATE -Wl,--version-script=${TUTTI_PLUGIN_CMAKE_DIR}/plugin.map -Wl,-z,now)
  if(TARGET tutti_options)
    target_link_libraries(${target} PRIVATE tutti_options)
  endif()
  if(NOT TUTTI_SANITIZE) # a sanitizer's symbols come from the program
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  if(TUTTI_PLUGIN_BUILD_DIR)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TUTTI_PLUGIN_BUILD_DIR})
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti/plugins)
    set_property(GLOBAL APPEND PROPERTY TUTTI_INSTALLED_PLUGINS ${target})
  endif()
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND ${CMAKE_COMMAND} -DPLUGIN=$<TARGET_FILE:${target}> -DNM=${CMAKE_NM} -DREADELF=${CMAKE_READELF}
            -P ${TUTTI_PLUGIN_CMAKE_DIR}/CheckPlugin.cmake)
endfunction()
