# The libraries that libnccl.so.2 and the plugins contain instead of needing them as shared libraries. Fewer files have
# to be copied, and the program that loads them sees none of these libraries.
#
# Targets tutti_inside_<library>: an archive if this system has a suitable one, else the shared library. TUTTI_OUTSIDE
# lists the latter.
set(TUTTI_OUTSIDE "")

# tutti_inside(<library> <target> <location of its shared library>)
function(tutti_inside library target location)
  get_filename_component(folder "${location}" DIRECTORY)
  find_library(TUTTI_ARCHIVE_${library} lib${library}.a PATHS "${folder}" NO_DEFAULT_PATH)
  mark_as_advanced(TUTTI_ARCHIVE_${library})
  unset(TUTTI_ARCHIVE_FITS_${library} CACHE)
  if(TUTTI_ARCHIVE_${library} AND NOT TUTTI_SANITIZE) # libraries without instrumentation stay separate
    # Many archives are made for programs: their code depends on its position, or they need libraries of their own.
    try_compile(TUTTI_ARCHIVE_FITS_${library} SOURCES ${PROJECT_SOURCE_DIR}/cmake/empty.cpp
      LINK_OPTIONS -shared -Wl,-z,defs
      LINK_LIBRARIES -Wl,--whole-archive ${TUTTI_ARCHIVE_${library}} -Wl,--no-whole-archive)
  endif()
  add_library(tutti_inside_${library} INTERFACE)
  if(TUTTI_ARCHIVE_FITS_${library})
    target_link_libraries(tutti_inside_${library} INTERFACE ${TUTTI_ARCHIVE_${library}})
    target_include_directories(tutti_inside_${library} SYSTEM INTERFACE
      $<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>)
  else()
    target_link_libraries(tutti_inside_${library} INTERFACE ${target})
    set(TUTTI_OUTSIDE ${TUTTI_OUTSIDE} lib${library}.so PARENT_SCOPE)
  endif()
endfunction()

get_target_property(location yaml-cpp::yaml-cpp LOCATION)
tutti_inside(yaml-cpp yaml-cpp::yaml-cpp "${location}")
list(GET HWLOC_LINK_LIBRARIES 0 location)
tutti_inside(hwloc PkgConfig::HWLOC "${location}")
if(TARGET pugixml::pugixml)
  set(location "")
  if(TARGET pugixml::shared)
    get_target_property(location pugixml::shared LOCATION)
  endif()
  tutti_inside(pugixml pugixml::pugixml "${location}")
endif()

tutti_inside(crypto OpenSSL::Crypto "${OPENSSL_CRYPTO_LIBRARY}")
# libssl fits only the libcrypto beside it: both are archives, or both are shared. A target links this or
# tutti_inside_crypto.
get_filename_component(folder "${OPENSSL_SSL_LIBRARY}" DIRECTORY)
find_library(TUTTI_ARCHIVE_ssl libssl.a PATHS "${folder}" NO_DEFAULT_PATH)
mark_as_advanced(TUTTI_ARCHIVE_ssl)
add_library(tutti_inside_ssl INTERFACE)
if(TUTTI_ARCHIVE_FITS_crypto AND TUTTI_ARCHIVE_ssl)
  target_link_libraries(tutti_inside_ssl INTERFACE ${TUTTI_ARCHIVE_ssl} tutti_inside_crypto)
else()
  target_link_libraries(tutti_inside_ssl INTERFACE OpenSSL::SSL OpenSSL::Crypto)
endif()

# Distributions have fmt as a shared library only, but all that is in it is in its headers, too.
get_target_property(location fmt::fmt LOCATION)
if(fmt_VERSION MATCHES "^9\\." AND NOT TUTTI_SANITIZE)
  add_library(tutti_inside_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cpp)
  target_include_directories(tutti_inside_fmt SYSTEM PUBLIC
    $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  tutti_inside(fmt fmt::fmt "${location}")
endif()

# Targets with the property TUTTI_SELF_CONTAINED contain them; all other targets use the libraries of the system.
add_library(tutti_libraries INTERFACE)
function(tutti_choose library target)
  if(TARGET ${target})
    target_link_libraries(tutti_libraries INTERFACE
      $<IF:$<BOOL:$<TARGET_PROPERTY:TUTTI_SELF_CONTAINED>>,tutti_inside_${library},${target}>)
  endif()
endfunction()
tutti_choose(yaml-cpp yaml-cpp::yaml-cpp)
tutti_choose(hwloc PkgConfig::HWLOC)
tutti_choose(pugixml pugixml::pugixml)
tutti_choose(fmt fmt::fmt)
tutti_choose(crypto OpenSSL::Crypto)

if(TUTTI_OUTSIDE AND TUTTI_WITH_CUDA AND NOT TUTTI_SANITIZE)
  list(JOIN TUTTI_OUTSIDE ", " outside)
  message(STATUS "libnccl.so.2 will need shared libraries of which there is no archive that fits: ${outside}")
endif()
